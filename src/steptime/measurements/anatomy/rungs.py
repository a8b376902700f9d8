"""Anatomy launches as arrays: how long each rung took, per launch, block and worker."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.anatomy.records import AnatomyLaunch

Array = NDArray[np.float64]

_ALONE = ("local", "backward", "forward")
"""Rungs in which workers compute and do not wait for each other, the fullest first."""


@dataclass(frozen=True)
class Climb:
    """One launch; durations are seconds."""

    rungs: dict[str, list[Array]]
    """For each rung, for each block, the durations: workers x steps of the block."""

    def means(self, rung: str) -> Array:
        """Mean duration over workers and steps, of every block."""
        return np.array([block.mean() for block in self.rungs[rung]])

    @property
    def alone(self) -> str | None:
        """The fullest rung that workers climb without waiting for each other; None when there is none."""
        return next((name for name in _ALONE if name in self.rungs), None)

    def compute(self) -> Array:
        """Computation without any waiting: workers x steps, all blocks one after the other; empty without a rung."""
        name = self.alone
        return np.concatenate(self.rungs[name], axis=1) if name else np.empty((0, 0))


def climbs(launches: Sequence[AnatomyLaunch]) -> list[Climb]:
    """Return those of ``launches`` that ended well."""
    return [_climb(launch) for launch in launches if launch.status == "ok" and launch.workers]


def _climb(launch: AnatomyLaunch) -> Climb:
    first = launch.workers[0]
    return Climb(
        {
            name: [np.array([worker.rungs[name][block] for worker in launch.workers]) for block in range(len(blocks))]
            for name, blocks in first.rungs.items()
        }
    )
