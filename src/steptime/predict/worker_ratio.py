"""What more workers bring: how many times the time of fewer they take for the same samples, and at which cost."""

from dataclasses import astuple, dataclass

import numpy as np

from steptime.fitting.posterior import Array, bounds
from steptime.results.json_form import Interval


@dataclass(frozen=True)
class WorkerRatio:
    """A number of workers over a smaller one, for the same samples, with intervals of 90 %."""

    workers: tuple[int, int]
    """The smaller number, and the larger."""
    time: Interval[float, float]
    worker_time: Interval[float, float]
    """Of the workers' time together, which is what they cost."""

    def to_json(self) -> dict[str, object]:
        """Return the object that docs/prediction.md describes."""
        return {
            "workers": list(self.workers),
            "time_ratio": interval_to_json(self.time),
            "worker_time_ratio": interval_to_json(self.worker_time),
        }


def worker_ratio(workers: tuple[int, int], seconds: tuple[Array, Array], value: float) -> WorkerRatio:
    """Return the ratio of two numbers of workers.

    Args:
        workers: the smaller number, and the larger.
        seconds: draws of both for the same samples, drawn together.
        value: the ratio of what is predicted of both.
    """
    low, high = bounds(seconds[1] / seconds[0])
    time = Interval[float, float](value, min(low, value), max(high, value))
    return WorkerRatio(workers, time, times_workers(time, *workers))


def times_workers(time: Interval[float, float], fewer: int, more: int) -> Interval[float, float]:
    """Return the ratio of workers' time together, by that of the time."""
    return Interval(*(more / fewer * end for end in astuple(time)))


def interval_to_json(ratio: Interval[float, float]) -> dict[str, float]:
    """Return an interval as an object of JSON."""
    return dict(zip(("value", "low", "high"), map(float, astuple(ratio)), strict=True))


def shared_normal(shared: Array, of_shared: float, whole: float, rng: np.random.Generator) -> Array:
    """Return normal draws of a standard deviation, of which a part is that of ``shared`` standard normal draws."""
    own = rng.standard_normal(shared.shape)
    drawn: Array = of_shared * shared + np.sqrt(max(whole**2 - of_shared**2, 0.0)) * own
    return drawn
