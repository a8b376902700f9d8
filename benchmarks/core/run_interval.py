"""How often the interval of a mean within one run holds the truth, from few values whose neighbours hang together.

``python benchmarks/core/run_interval.py [REPETITIONS]`` prints a CSV row for each distribution, number of values and
correlation. Values come from a normal autoregression with that correlation, whose quantiles are those of the
distribution: *normal* with a standard deviation of a fifth of its mean, *lognormal* with one of 0.5 of the logarithm,
*exponential* of which every second value is 0. *coverage* is in percent; *width* is the mean width over that of
Student's interval of the same values, whose coverage is *student*.
"""

import sys
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter  # type: ignore[import-untyped]  # scipy ships no types
from scipy.special import log_ndtr  # type: ignore[import-untyped]

from steptime.statistics.interval import LEVEL, mean_within, t_quantile

Array = NDArray[np.float64]

_SETTLING = 100
_SPREAD = 0.5
DISTRIBUTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "normal": (lambda z: 100.0 + 20.0 * z, 100.0),
    "lognormal": (lambda z: np.exp(_SPREAD * z), float(np.exp(0.5 * _SPREAD**2))),
    "exponential, half 0": (lambda z: np.where(z > 0.0, -np.log(2.0) - log_ndtr(-z), 0.0), 0.5),
}
"""Of a standard normal value, with the mean."""


def series_of(rng: np.random.Generator, repetitions: int, count: int, correlation: float) -> Array:
    """Return standard normal values, a series in each row."""
    new = rng.normal(size=(repetitions, count + _SETTLING))
    return np.asarray(lfilter([np.sqrt(1.0 - correlation**2)], [1.0, -correlation], new, axis=-1)[:, _SETTLING:])


def rows(repetitions: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "distribution,values,correlation,coverage,width,student"
    for name, (quantile, truth) in DISTRIBUTIONS.items():
        for count in (8, 13, 16, 20, 32, 64, 200):
            for correlation in (0.0, 0.3, 0.6):
                rng = np.random.default_rng([count, round(10 * correlation)])
                values = quantile(series_of(rng, repetitions, count, correlation))
                bounds = np.array([(found.low, found.high) for found in map(mean_within, values)], dtype=np.float64)
                covered = np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
                half = t_quantile(count - 1, LEVEL) * values.std(axis=1, ddof=1) / np.sqrt(count)
                student = np.mean(np.abs(values.mean(axis=1) - truth) <= half)
                width = np.mean(bounds[:, 1] - bounds[:, 0]) / np.mean(2.0 * half)
                numbers = f"{100 * covered:.1f},{width:.2f},{100 * student:.1f}"
                yield f'"{name}",{count},{correlation},{numbers}'


def main() -> None:
    """Print the table."""
    for line in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
