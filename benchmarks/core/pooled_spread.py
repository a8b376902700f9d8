"""How often the intervals of docs/decisions/0011-pooled-spread.md hold the truth, and how much narrower they are.

``python benchmarks/core/pooled_spread.py [REPETITIONS]`` prints a row per kind of study: the coverage of all trials'
intervals, that of the half of trials that spreads more, and the median half-width relative to that of Student's t for
each trial alone (docs/decisions/0018-mean-step.md). The ratio of two trials is compared with the paired interval.
"""

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from steptime.measurements.interval import LEVEL, half_width_between
from steptime.measurements.launch_spread import TrialSpread, pooled_error, spreads_of

Array = NDArray[np.float64]


def spreads(rng: np.random.Generator, kind: str, trials: int) -> Array:
    """Return the standard deviation of each trial's launches."""
    if kind == "threefold":
        return np.asarray(3.0 ** rng.uniform(0.0, 1.0, trials))
    if kind == "tenfold":
        return np.asarray(10.0 ** rng.uniform(0.0, 1.0, trials))
    if kind == "one of 30":
        return np.where(np.arange(trials) < 1, 30.0, 1.0)
    return np.ones(trials)


def studies(
    trials: int, launches: list[int], kind: str, drift: float, repetitions: int
) -> Iterator[tuple[Array, Array]]:
    """Yield log medians, trials x blocks around a truth of 0, with NaN where a trial did not run, and the spreads."""
    rng = np.random.default_rng(1)
    for _ in range(repetitions):
        spread = spreads(rng, kind, trials)
        counts = np.array([launches[trial % len(launches)] for trial in range(trials)])
        logs = spread[:, None] * rng.standard_normal((trials, max(launches)))
        logs += drift * float(np.sqrt(np.mean(spread**2))) * rng.standard_normal(max(launches))
        logs[np.arange(max(launches)) >= counts[:, None]] = np.nan
        yield logs, spread


def pooled(spread: TrialSpread, logs: Array) -> float:
    """Return the half-width of a trial's logarithm."""
    blocks = np.flatnonzero(~np.isnan(logs)).tolist()
    return pooled_error([(spread, dict.fromkeys(blocks, 1.0 / len(blocks)))], LEVEL).half_width


def ratio(found: list[TrialSpread], logs: Array) -> tuple[float, float]:
    """Return half-width and truth's distance of the ratio of the last two trials."""
    shares = []
    for row, sign in ((-1, 1.0), (-2, -1.0)):
        blocks = np.flatnonzero(~np.isnan(logs[row])).tolist()
        shares.append((found[row], dict.fromkeys(blocks, sign / len(blocks))))
    return pooled_error(shares, LEVEL).half_width, float(np.nanmean(logs[-1]) - np.nanmean(logs[-2]))


def row(trials: int, launches: list[int], kind: str, drift: float, repetitions: int) -> str:
    """Return a row of the table."""
    covered, wide, ratios, half, alone, paired, ratio_widths = [], [], [], [], [], [], []
    for logs, spread in studies(trials, launches, kind, drift, repetitions):
        found = spreads_of(logs)
        half_widths = np.array([pooled(each, own) for each, own in zip(found, logs, strict=True)])
        hit = np.abs(np.nanmean(logs, axis=1)) <= half_widths
        covered.append(hit.mean())
        wide.append(hit[spread >= np.median(spread)].mean())
        half.append(half_widths)
        alone.append([float(half_width_between(own[~np.isnan(own)])) for own in logs])
        width, distance = ratio(found, logs)
        ratios.append(abs(distance) <= width)
        ratio_widths.append(width)
        both = logs[-1] - logs[-2]
        paired.append(float(half_width_between(both[~np.isnan(both)])))
    narrower = np.median(half) / np.median(alone)
    ratio_narrower = np.median(ratio_widths) / np.median(paired)
    return (
        f"| {trials} | {', '.join(map(str, launches))} | {kind} | {drift:g} | {100 * np.mean(covered):.1f} | "
        f"{100 * np.mean(wide):.1f} | {narrower:.2f} | {100 * np.mean(ratios):.1f} | {ratio_narrower:.2f} |"
    )


def main(repetitions: int) -> None:
    """Print the table."""
    sys.stdout.write(
        "| trials | launches | spreads | drift | covered, % | those that spread more | half-width | ratio covered, % "
        "| its half-width |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    cells = [
        (trials, [launches], kind, 0.0)
        for trials in (3, 6, 18)
        for launches in (2, 3, 5, 10)
        for kind in ("alike", "threefold")
    ]
    cells += [(18, [2, 3], kind, 0.0) for kind in ("alike", "threefold")]
    cells += [(18, [launches], "alike", drift) for launches in (2, 3, 5) for drift in (0.5, 1.0, 3.0)]
    cells += [(18, [launches], kind, 0.0) for launches in (2, 3) for kind in ("tenfold", "one of 30")]
    for trials, launches, kind, drift in cells:
        enough = max(1, repetitions * 6 // max(trials, 6))
        sys.stdout.write(row(trials, launches, kind, drift, enough) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
