"""How the step times of a trial are spread, small enough to be drawn."""

from collections.abc import Iterable

import numpy as np

from steptime.measurements.launch_times import launch_times
from steptime.measurements.records import Launch

POINTS = 101
"""Most points of a distribution: one per percent, from the shortest step to the longest."""


def step_time_quantiles(launches: Iterable[Launch], strategy: str) -> list[tuple[float, float]]:
    """Return points ``(share, seconds)``: that share of the steady steps took at most so long.

    Steps of all launches that ended well count alike; launches may be given one by one, only their step times are
    kept. With fewer than ``POINTS`` steps there is a point per step; without any, the list is empty.
    """
    reduced = (launch_times(launch, strategy) for launch in launches)
    steady = [each.steady_s for each in reduced if each is not None]
    if not steady:
        return []
    times = np.concatenate(steady)
    shares = np.linspace(0.0, 1.0, min(POINTS, len(times))) if len(times) > 1 else np.ones(1)
    return list(zip(shares.tolist(), np.quantile(times, shares).tolist(), strict=True))
