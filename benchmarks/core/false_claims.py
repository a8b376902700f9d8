"""How often a table calls one of several equal trials slower than the best, and a worker of equal workers slow.

``python benchmarks/core/false_claims.py [STUDIES]`` simulates studies with the functions that the report uses, and
prints for each kind of study the share with a false claim: as the report compares (all claims hold together) and with
each trial compared by itself. benchmarks/core/false-claims.md has the tables.

``python benchmarks/core/false_claims.py --live FOLDER [STUDIES]`` runs studies of equal trials on this machine instead
and counts those that call one slower, and those that find one trial's clock scaled by a tenth; it goes on where it was
interrupted.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import erfc, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.ablation.imbalance import blamed_worker
from steptime.results.jsonlines import CHECKSUM, signed
from steptime.statistics.comparison import compare
from steptime.statistics.launch_spread import pool_spread
from steptime.statistics.launch_times import reduce_times

Array = NDArray[np.float64]

NOISE = 0.02
"""Standard deviation of a launch's logarithm."""
KINDS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "alike": lambda _, trials: np.ones(trials),
    "threefold": lambda rng, trials: np.asarray(3.0 ** rng.uniform(0.0, 1.0, trials)),
}
"""Standard deviations of trials, relative to each other."""


def studies(trials: int, launches: int, kind: str, drift: float, count: int) -> Iterator[Array]:
    """Yield log step times of equal trials, trials x blocks."""
    rng = np.random.default_rng([trials, launches])
    for _ in range(count):
        spread = NOISE * KINDS[kind](rng, trials)
        logs = spread[:, None] * rng.standard_normal((trials, launches))
        yield logs + drift * float(np.sqrt(np.mean(spread**2))) * rng.standard_normal(launches)


def calls_one_slower(logs: Array, *, together: bool) -> tuple[bool, float]:
    """Return whether a trial is called slower than the best one, and the median half-width of the comparisons.

    Args:
        logs: of launches, trials x blocks.
        together: whether the comparisons hold together, as in a report.
    """
    trials = {str(row): reduce_times([np.exp([log]) for log in each]) for row, each in enumerate(logs)}
    spreads = pool_spread(trials)
    best = str(int(logs.mean(axis=1).argmin()))
    found = [
        compare(
            trials[name],
            trials[best],
            spreads=(spreads[name], spreads[best]) if spreads else None,
            family=len(trials) if together else None,
        )
        for name in trials
        if name != best
    ]
    widths = [0.5 * float(np.log(each.high / each.low)) for each in found]
    return any(each.low > 1.0 for each in found), float(np.median(widths))


def rankings(count: int) -> Iterator[str]:
    """Yield the rows of the table of rankings."""
    yield "| trials | launches | spreads | drift | false claims, % | each by itself, % | half-width, times its own |"
    yield "|---|---|---|---|---|---|---|"
    for trials in (2, 3, 4, 8, 20):
        for launches in (2, 3, 5, 10):
            for kind, drift in (("alike", 0.0), ("threefold", 0.0), ("alike", 1.0)):
                enough = max(100, count * 8 // max(trials, 8))
                drawn = list(studies(trials, launches, kind, drift, enough))
                together, alone = (
                    [calls_one_slower(logs, together=together) for logs in drawn] for together in (True, False)
                )
                shares = [100.0 * float(np.mean([false for false, _ in each])) for each in (together, alone)]
                wider = np.median([width for _, width in together]) / np.median([width for _, width in alone])
                cell = f"| {trials} | {launches} | {kind} | {drift:g} "
                yield f"{cell}| {shares[0]:.1f} | {shares[1]:.1f} | {wider:.2f} |"


def blames(count: int) -> Iterator[str]:
    """Yield the rows of the table of workers: equal ones, and one that computes 20 % longer."""
    yield "| workers | launches | effect of a launch | blamed wrongly, % | found at 20 %, % |"
    yield "|---|---|---|---|---|"
    for workers in (2, 4):
        for launches in (1, 2, 3, 5):
            for effect in (0.02, 0.10):
                rng = np.random.default_rng([workers, launches])
                shares = []
                for planted in (0.0, np.log(1.2)):
                    blamed = []
                    for _ in range(count):
                        logs = effect * rng.standard_normal((launches, workers, 1))
                        logs = logs + 0.05 * rng.standard_normal((launches, workers, 60))
                        logs[:, 0] += planted
                        blamed.append(blamed_worker(list(np.exp(logs))))
                    right = [each == 0 if planted else each is not None for each in blamed]
                    shares.append(100.0 * float(np.mean(right)))
                yield f"| {workers} | {launches} | {effect:g} | {shares[0]:.1f} | {shares[1]:.1f} |"


STUDY = """version: 1
question: Are equal trials called equal?
workloads: [{{name: lenet5, dataset: digits, batch_per_worker: 16}}]
frameworks: {framework}
strategies: single
workers: 1
environment_variables:
  {framework}: {{BLIS_SAME: [{values}]}}
equivalence: {{enabled: false}}
budget: 5m
launches: {{min: {launches}, max: {launches}}}
steps: {{warmup: 5, min: 40, max: 60}}
"""


_COLUMNS = ("study", "framework", "slower", "half_width", "planted_ratio", "planted_low", "found")
_PLANTED = 1.1
"""Times the clock of the first trial, in a copy of a study's results: a spin would be preempted, a clock is not."""


def live(folder: Path, count: int) -> Iterator[str]:
    """Run studies of four equal trials, which differ in a variable that nothing reads, and yield what each claimed.

    A line is appended to ``live.csv`` for each; those that are there are not run again. Each is reported twice: as it
    is, and with the clock of one trial scaled.
    """
    table = folder / "live.csv"
    folder.mkdir(parents=True, exist_ok=True)
    if not table.exists():
        table.write_text(",".join(_COLUMNS) + "\n")
    known = {int(row["study"]) for row in csv.DictReader(table.open())}
    for number in (each for each in range(count) if each not in known):
        framework = ("reference", "pytorch")[number % 2]
        target = folder / f"study-{number}"
        study = folder / f"study-{number}.yaml"
        study.write_text(STUDY.format(framework=framework, values='"a", "b", "c", "d"', launches=3))
        command = [sys.executable, "-m", "steptime", "run", str(study), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{number} {framework}: {done.stderr.strip()[-400:]}"
            continue
        ranking = _ranking(target)
        slower = [place["ratio_to_best"]["value"] for place in ranking if not place["tied_with_best"]]
        others = [place["ratio_to_best"] for place in ranking[1:]]
        half = max(0.5 * log(each["high"] / each["low"]) for each in others)
        planted = scale_clock(target, folder / f"planted-{number}")
        (place,) = [each for each in _ranking(folder / f"planted-{number}") if each["trial"] == planted]
        found = int(not place["tied_with_best"])
        numbers = [f"{each:.4f}" for each in (half, place["ratio_to_best"]["value"], place["ratio_to_best"]["low"])]
        row = [number, framework, len(slower), *numbers, found]
        with table.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
        yield " ".join(map(str, row))
    yield from _summary(list(csv.DictReader(table.open())))


def _ranking(results: Path) -> list[dict[str, Any]]:
    report = [sys.executable, "-m", "steptime", "report", str(results), "--json"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(report, capture_output=True, text=True, check=True).stdout)[
        "ranking"
    ]
    return found


def scale_clock(results: Path, copy: Path) -> str:
    """Copy a results folder with the first trial's steps longer by a share, by its clock and by the kernel's marks.

    Returns the trial's id.
    """
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(results, copy, ignore=shutil.ignore_patterns("launch-*"))
    trial = min((copy / "trials").iterdir())
    path = trial / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for launch in (each for each in lines if each["kind"] == "launch"):
        launch["wall_s"] *= _PLANTED
        for worker in launch.get("workers", ()):
            origin_s, kernel = worker["origin_s"], worker["kernel_marks"]
            worker["usage"]["wall_s"] *= _PLANTED
            for name in ("warmup_ends_s", "ends_s"):
                worker[name] = [origin_s + _PLANTED * (end - origin_s) for end in worker[name]]
            kernel["settled_s"] = origin_s + _PLANTED * (kernel["settled_s"] - origin_s)
            kernel["marks"] = [[count, _PLANTED * at_s, over] for count, at_s, over in kernel["marks"]]
    path.write_bytes(
        b"".join(signed({name: each for name, each in line.items() if name != CHECKSUM}) for line in lines)
    )
    return trial.name


def _summary(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield how many studies made a false claim, and how many found what was planted, of as many as were to find it.

    With a half-width h, the planted difference d is found with the probability that a normal value of the standard
    deviation h / 2 is above h - d.
    """
    if rows:
        halves = [float(row["half_width"]) for row in rows]
        promised = sum(0.5 * erfc((half - log(_PLANTED)) / (half / 2.0) / sqrt(2.0)) for half in halves)
        false, found = sum(int(row["slower"]) > 0 for row in rows), sum(int(row["found"]) for row in rows)
        yield f"{false} of {len(rows)} studies with a false claim; {_PLANTED:g} times the clock found in {found}"
        yield f"half-widths {min(halves):.3f} to {max(halves):.3f}, which promise {promised:.1f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="?", type=int, default=1000)
    parser.add_argument("--live", type=Path)
    arguments = parser.parse_args()
    if arguments.live:
        lines = live(arguments.live, arguments.studies)
    else:
        lines = (line for part in (rankings, blames) for line in part(arguments.studies))
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
