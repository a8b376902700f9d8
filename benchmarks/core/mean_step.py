"""How often the interval of a mean step time holds the truth, with and without stalls (decision 18).

``python benchmarks/core/mean_step.py [REPETITIONS]`` prints a CSV row for each number of launches, correlation of
neighbouring steps and kind of stall. Launches have 200 log-normal autoregressive steps with a spread of 5 %. *alone* is
the coverage of a trial's own interval in percent, *pooled* that of the same trial among five others without stalls, and
*half_width* the median half-width of the first in percent.
"""

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter  # type: ignore[import-untyped]  # scipy ships no types

from steptime.statistics.interval import LEVEL, step_time
from steptime.statistics.launch_spread import pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes, reduce_times

Array = NDArray[np.float64]

_STEPS = 200
_SETTLING = 100
_SPREAD = 0.05
_OTHERS = 5
KINDS: dict[str, tuple[int, float, float]] = {
    "none": (0, 0.0, 0.0),
    "every 2nd, 1 step long": (2, 0.0, 1.0),
    "every 4th, 2 steps long": (4, 0.0, 2.0),
    "every 7th, 2 steps long": (7, 0.0, 2.0),
    "every 25th, 5 steps long": (25, 0.0, 5.0),
    "2 % at random, 2 steps long": (0, 0.02, 2.0),
    "8 % at random, 2 steps long": (0, 0.08, 2.0),
    "2 % at random, 20 steps long": (0, 0.02, 20.0),
}
"""The period, or the share at random, and how much longer than a step without stall."""


def steps(rng: np.random.Generator, launches: int, phi: float) -> Array:
    """Return the step times of launches, with a median of 1."""
    new = rng.normal(size=(launches, _STEPS + _SETTLING))
    logs = lfilter([np.sqrt(1.0 - phi**2)], [1.0, -phi], new, axis=-1)[:, _SETTLING:]
    return np.asarray(np.exp(_SPREAD * logs))


def with_stalls(rng: np.random.Generator, times: Array, kind: str) -> Array:
    """Return ``times`` with stalls, which begin anywhere in the period of each launch."""
    period, share, length = KINDS[kind]
    if period:
        return times + length * ((np.arange(_STEPS) + rng.integers(0, period, (len(times), 1))) % period == 0)
    return times + length * (rng.random(times.shape) < share)


def truth(kind: str) -> float:
    """Return the true mean step."""
    period, share, length = KINDS[kind]
    return float(np.exp(_SPREAD**2 / 2)) + length * (1.0 / period if period else share)


def reduced(times: Array) -> list[LaunchTimes]:
    """Return what is kept of each launch."""
    return reduce_times(times)


def rows(repetitions: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "launches,phi,stalls,alone,pooled,half_width"
    for launches in (1, 2, 3, 5, 10):
        for phi in (0.0, 0.5, 0.9):
            for kind in KINDS:
                rng = np.random.default_rng([launches, round(10 * phi)])
                alone, pooled, widths = [], [], []
                for _ in range(repetitions):
                    own = reduced(with_stalls(rng, steps(rng, launches, phi), kind))
                    found = step_time(own)
                    alone.append(found.low <= truth(kind) <= found.high)
                    widths.append(found.half_width)
                    if launches > 1:
                        trials = {str(number): reduced(steps(rng, launches, phi)) for number in range(_OTHERS)}
                        spread = pool_spread({**trials, "own": own})["own"]
                        share = {launch.block: 1.0 / launches for launch in own}
                        half_width = pooled_error([(spread, share)], LEVEL).half_width
                        pooled.append(abs(np.log(found.value / truth(kind))) <= half_width)
                shown = f"{100 * np.mean(pooled):.1f}" if pooled else ""
                yield f'{launches},{phi},"{kind}",{100 * np.mean(alone):.1f},{shown},{100 * np.median(widths):.2f}'


def main() -> None:
    """Print the table."""
    for line in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 400):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
