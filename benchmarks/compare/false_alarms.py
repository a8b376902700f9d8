"""How often ``steptime compare`` raises a false alarm, finds a planted change, and keeps the power that it promises.

``python benchmarks/compare/false_alarms.py [REPEATS]`` compares simulated sides with the functions of the product and
writes ``false-alarms.json``. Launches are those of launches.csv: real ones of four trials in the same blocks, on a
machine that others used meanwhile. Each simulated block has the deviations of a real block, for all trials alike, so
that what drifts together does; deviations are shrunk to the spread of a row, which keeps their shape.

Layouts: ``interleaved`` draws both sides from the same real blocks, as ``steptime run --environments`` measures them;
``apart`` draws the blocks of two folders one by one; ``nights`` takes neighbouring real blocks for each folder, so that
the machine's slow drift lies between the folders.

``python benchmarks/compare/false_alarms.py --launches RESULTS`` writes launches.csv from a results folder.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.form import ChangeReport
from steptime.analysis.compared.sides import ComparedSide, Subject
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.statistics.launch_times import LaunchTimes

HERE = Path(__file__).parent
LAUNCHES, RESULT = HERE / "launches.csv", HERE / "false-alarms.json"
THRESHOLD = 0.05
CHANGES = (0.0, 0.05, 0.08)
SPREADS = (0.01, 0.02, None)
"""Standard deviations of the logarithm of a launch; None takes the launches as they were."""
BUDGETS = (5, 10)
LAYOUTS = ("interleaved", "apart", "nights")
NIGHTS, STEP_AT = 30, 15
"""Of a history, and the night with which a planted change comes."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """One row of the table."""

    layout: str
    spread: float | None
    launches: int
    pairs: int
    change: float


def deviations() -> Array:
    """Return the logarithms of real launches around their trial's mean, trials x blocks."""
    with LAUNCHES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    logs = np.array([[float(value) for name, value in row.items() if name != "block"] for row in rows]).T
    return np.log(logs) - np.log(logs).mean(axis=1, keepdims=True)


def shrunk(logs: Array, spread: float | None) -> Array:
    """Return deviations whose standard deviation is ``spread`` over all trials."""
    return logs if spread is None else logs * spread / float(np.sqrt(np.mean(logs.var(axis=1, ddof=1))))


def side(name: str, logs: Array, blocks: Sequence[int], changes: Sequence[float]) -> ComparedSide:
    """Return a side of trials with these logarithms of launches, trials x launches, each slower by its change."""
    subjects = [
        Subject(
            id=f"trial-{row}",
            identity={"workload": f"w{row}"},
            options={},
            launches=[
                LaunchTimes(block, np.exp([log + np.log1p(change)]), 0, float(log + np.log1p(change)), 0.0)
                for block, log in zip(blocks, own, strict=True)
            ],
        )
        for row, (own, change) in enumerate(zip(logs, changes, strict=True))
    ]
    return ComparedSide(name, name, subjects, subjects, started=["2026-01-01T00:00"])


def compared(rng: np.random.Generator, logs: Array, plan: Plan) -> ChangeReport:
    """Compare two simulated sides, of which the first trial of the second is slower by the planned change."""
    count = logs.shape[1]
    planted = [plan.change, *[0.0] * (plan.pairs - 1)]
    even = [0.0] * plan.pairs
    if plan.layout == "interleaved":
        # The machine is the same for both, what a launch has of its own is not: neighbours in the same real block.
        drawn = rng.integers(count, size=plan.launches)
        common = logs[:, drawn].mean(axis=0)
        own = logs - logs.mean(axis=0)
        first, second = (common + own[: plan.pairs, rng.integers(count, size=plan.launches)] for _ in range(2))
        blocks = range(plan.launches)
        one, other = side("runs", first, blocks, even), side("runs", second, blocks, planted)
        # One source has the subjects of both sides.
        renamed = [Subject(f"new-{each.id}", each.identity, each.options, each.launches) for each in other.subjects]
        company = [*one.subjects, *renamed]
        return change_between(
            ComparedSide("a", "runs", one.subjects, company, started=one.started),
            ComparedSide("b", "runs", renamed, company, started=one.started),
            THRESHOLD,
        )
    sides = []
    for name, changes in (("a", even), ("b", planted)):
        if plan.layout == "apart":
            drawn = rng.integers(count, size=plan.launches)
        else:
            drawn = (rng.integers(count) + np.arange(plan.launches)) % count
        sides.append(side(name, logs[: plan.pairs, drawn], range(plan.launches), changes))
    return change_between(*sides, THRESHOLD)


def row(logs: Array, plan: Plan, repeats: int) -> dict[str, object]:
    """Return a row of the table: shares of the repeats."""
    rng = np.random.default_rng([repeats, plan.launches, plan.pairs, LAYOUTS.index(plan.layout)])
    found = [compared(rng, shrunk(logs, plan.spread), plan) for _ in range(repeats)]
    planted, change = [each.trials[0] for each in found], plan.change or THRESHOLD
    smallest = [each.smallest_change for each in planted if each.smallest_change is not None]
    failing = [each.smallest_failing for each in planted if each.smallest_failing is not None]
    return {
        "layout": plan.layout,
        "spread": plan.spread,
        "launches": plan.launches,
        "pairs": plan.pairs,
        "change": plan.change,
        "repeats": repeats,
        "called_slower": float(np.mean([each.verdict == "slower" for each in planted])),
        "any_claim": float(
            np.mean([any(trial.verdict in {"slower", "faster"} for trial in each.trials) for each in found])
        ),
        "fails": sum(each.fails for each in found),
        "smallest_change_median": float(np.median(smallest)) if smallest else None,
        "smallest_failing_median": float(np.median(failing)) if failing else None,
        "promised_power_of_5_percent": float(np.mean([each.power_at_threshold or 0.0 for each in planted]))
        if change == THRESHOLD
        else None,
    }


def plans() -> Iterator[Plan]:
    """Yield every row; four pairs, of which one is planted, with one spread alone."""
    for pairs, spreads in ((1, SPREADS), (4, SPREADS[1:2])):
        for layout, spread, launches, change in product(LAYOUTS, spreads, BUDGETS, CHANGES):
            yield Plan(layout, spread, launches, pairs, change)


def history(logs: Array, spread: float | None, launches: int, change: float, repeats: int) -> dict[str, object]:
    """Return how 30 nights end, each compared with the first: alarms before the change, and nights until it is found.

    Nights are neighbouring real blocks; the trial is slower from the middle of the history on.
    """
    rng = np.random.default_rng([repeats, launches, NIGHTS])
    scaled = shrunk(logs, spread)[:1]
    false, delays = 0, []
    for _ in range(repeats):
        sides = []
        for night in range(NIGHTS):
            drawn = (rng.integers(logs.shape[1]) + np.arange(launches)) % logs.shape[1]
            planted = change if night >= STEP_AT else 0.0
            sides.append(side(f"night {night}", scaled[:, drawn], range(launches), [planted]))
        alarms = [change_between(sides[0], each, THRESHOLD).fails for each in sides[1:]]
        false += sum(alarms[: STEP_AT - 1])
        later = [index for index, alarm in enumerate(alarms[STEP_AT - 1 :], 1) if alarm]
        delays.append(later[0] if later else None)
    found = [each for each in delays if each is not None]
    return {
        "spread": spread,
        "launches": launches,
        "change": change,
        "histories": repeats,
        "comparisons_before": repeats * (STEP_AT - 1),
        "false_alarms_before": false,
        "alarms_after": len(found),
        "median_nights_to_alarm": float(np.median(found)) if found else None,
    }


def write_launches(results: Path) -> None:
    """Write the step time of each launch of a study, a row per block that all of its trials ran in."""
    store = Store.open(results)
    steps: dict[str, dict[int, float]] = {}
    for trial in store.trials():
        found = estimate([each for each in store.records(TIMING, trial.id) if each.status == "ok"], trial.strategy)
        if found is not None:
            steps[trial.id] = {each.block: float(np.exp(each.log_mean)) for each in found.launches}
    common = sorted(set.intersection(*(set(own) for own in steps.values())))
    with LAUNCHES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["block", *steps])
        writer.writerows([[block, *(f"{own[block]:.6g}" for own in steps.values())] for block in common])


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("repeats", nargs="?", type=int, default=200)
    parser.add_argument("--launches", type=Path)
    chosen = parser.parse_args()
    if chosen.launches is not None:
        write_launches(chosen.launches)
        return
    logs = deviations()
    facts = {
        "trials": int(logs.shape[0]),
        "blocks": int(logs.shape[1]),
        "spread": float(np.sqrt(np.mean(logs.var(axis=1, ddof=1)))),
        "correlation_of_neighbours": float(np.mean([np.corrcoef(own[1:], own[:-1])[0, 1] for own in logs])),
    }
    found: dict[str, object] = {"launches": facts, "histories": [], "comparisons": []}
    histories = (
        history(logs, spread, launches, change, max(chosen.repeats // 10, 1))
        for spread, launches, change in product(SPREADS, BUDGETS, (0.0, 0.08))
    )
    comparisons = (row(logs, plan, chosen.repeats) for plan in plans())
    for name, rows in (("histories", histories), ("comparisons", comparisons)):
        kept: list[dict[str, object]] = []
        for each in rows:
            kept.append(each)
            found[name] = kept
            RESULT.write_text(json.dumps(found, indent=1) + "\n")
            sys.stdout.write(f"{json.dumps(each)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
