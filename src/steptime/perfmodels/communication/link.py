"""What carries a message: the rate and the latency of one link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]
"""A number, or an array of numbers: formulas are written once for both."""


@dataclass(frozen=True)
class Link:
    """One direction of a link between two workers or hosts."""

    rate: Real
    """Bytes per second that a long message reaches."""
    latency: Real = 0.0
    """Seconds per step of an algorithm, as measured with the back end that is modelled."""
    latencies_per_step: Real = 1.0
    """How many latencies that back end spends in one step: one by the textbook, two for gloo's ring."""

    rendezvous: Real = np.inf
    """Bytes from which a message waits until its receiver says that it is ready, over the connection that carries the
    messages of both; infinite where they have one each, or where nobody waits."""

    @property
    def start(self) -> Real:
        """Seconds that one step costs before its bytes."""
        return self.latency * self.latencies_per_step
