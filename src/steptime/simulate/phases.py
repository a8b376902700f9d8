"""The phases of simulated steps."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HIDDEN = "comm_hidden"
"""The phase that overlaps with others, and is not part of the sum."""


@dataclass(frozen=True)
class Phases:
    """Seconds, (configurations,) each; docs/glossary.md says what each is."""

    input_wait: Array
    h2d: Array
    forward: Array
    backward: Array
    comm_exposed: Array
    sync_wait: Array
    update: Array
    comm_hidden: Array

    @property
    def step(self) -> Array:
        """Sum of the phases: from one completed update to the next, on the slowest worker."""
        return np.asarray(sum(self.parts().values()), float)

    def parts(self) -> dict[str, Array]:
        """Return the phases that add up to the step."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != HIDDEN}
