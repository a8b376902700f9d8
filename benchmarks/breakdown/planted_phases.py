"""Plant a spin in one phase of a step, break the step down, and count how often its interval holds what was planted.

::

    python benchmarks/breakdown/planted_phases.py OUT.jsonl [--frameworks pytorch chainer] [--breakdowns 60]

The truth of a phase is the spin, as the planted code timed it, and the phase of the framework as it is, broken down in
the same round; the interval is that of the difference. ``step_found_s`` is the same difference of whole steps: where it
is away as well, the machine was busier in one of both. Appends a line of JSON for each breakdown, goes on where it
ended, and prints the count with Wilson's interval.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from math import hypot, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "equivalence"))
from configurations import small_workload, trial_of

from planted import planted_manifest
from steptime.catalog.manifest import load_manifests
from steptime.measurements.ablation.breakdown import break_down
from steptime.measurements.ablation.form import Phase
from steptime.runner.block_runner import BlockRunner, Schedule, StoppingRule
from steptime.runner.executor import Executor
from steptime.runner.host import usable_cores
from steptime.runner.jobs import AblationSchedule
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.runner.progress import Silent
from steptime.runner.trial_runs import TrialInputs, ablation_runs

if TYPE_CHECKING:
    from steptime.measurements.ablation.records import AblationLaunch

_ADAPTER = Path(__file__).with_name("planted_phases_adapter.py")
PHASES = ("forward", "backward", "update", "input_wait")
AS_IS = "none"
_SECONDS = 3.0
_QUANTILE = 1.96


def broken_down(framework: str, phase: str, launches: int) -> tuple[dict[str, Phase | None], float, float, list[str]]:
    """Return the phases of a step with ``phase`` planted, its seconds, those of the spin, and the launches' flags."""
    with tempfile.TemporaryDirectory(prefix="planted-phases-") as name:
        folder = Path(name)
        manifest = planted_manifest(load_manifests()[framework], phase, folder, str(_ADAPTER))
        prepared = prepare_environments([environment_spec(manifest)], Silent())
        workload = small_workload()
        trial = trial_of(manifest, "single", workload, 1)
        executor = Executor({framework: manifest}, prepared.environments, usable_cores(), 300.0)
        inputs = TrialInputs(folder, {trial.id: workload}, {trial.id: {"kind": "synthetic", "distinct_batches": 4}})
        runs = ablation_runs(inputs, AblationSchedule(warmup_steps=4, seconds=_SECONDS))
        kept: list[AblationLaunch] = []
        runner = BlockRunner(executor, runs, kept.append, Silent())
        runner.run(Schedule([trial], StoppingRule(launches, launches), "0"))
        found = break_down(trial, kept, [])
        if found is None:
            sys.exit(f"{framework} was not broken down: {[each.reason for each in kept]}")
        files = folder.glob("trials/*/ablation-*/planted-*.txt")
        lasted = [float(line) for path in files for line in path.read_text().splitlines()]
        flags = sorted({flag for launch in kept for flag in launch.flags})
        return dict(found.phases), found.step_s.value_s, sum(lasted) / len(lasted) if lasted else 0.0, flags


def cells(frameworks: list[str], done: int, count: int, launches: int) -> Iterator[dict[str, Any]]:
    """Yield the breakdowns that are left, round after round: each framework as it is, then with each phase planted."""
    number = 0
    while number < count:
        for framework in frameworks:
            if number + len(PHASES) > done:
                plain, plain_s, _, _ = broken_down(framework, AS_IS, launches)
            for phase in PHASES:
                number += 1
                if done < number <= count:
                    phases, step_s, planted_s, flags = broken_down(framework, phase, launches)
                    about = {"framework": framework, "phase": phase, "flags": flags, "step_found_s": step_s - plain_s}
                    yield about | judged(phases[phase], plain[phase], planted_s)


def judged(found: Phase | None, plain: Phase | None, planted_s: float) -> dict[str, Any]:
    """Return the planted seconds beside those found, and whether they lie in the interval of the difference."""
    if found is None or plain is None or None in {found.low_s, found.high_s, plain.low_s, plain.high_s}:
        return {"planted_s": planted_s, "found_s": None, "low_s": None, "high_s": None, "inside": None}
    value = found.value_s - plain.value_s
    low = value - hypot(found.value_s - found.low_s, plain.high_s - plain.value_s)
    high = value + hypot(found.high_s - found.value_s, plain.value_s - plain.low_s)
    return {
        "planted_s": planted_s,
        "found_s": value,
        "low_s": low,
        "high_s": high,
        "inside": low <= planted_s <= high,
    }


def main() -> None:
    """Break down what is left, and print each and the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frameworks", nargs="+", default=["reference", "pytorch", "chainer", "paddle"])
    parser.add_argument("--breakdowns", type=int, default=60)
    parser.add_argument("--launches", type=int, default=2)
    arguments = parser.parse_args()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    for cell in cells(arguments.frameworks, len(done), arguments.breakdowns, arguments.launches):
        done.append(cell)
        with arguments.out.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        print(json.dumps(cell), flush=True)
    known = [each["inside"] for each in done if each["inside"] is not None]
    if known:
        share, square = sum(known) / len(known), _QUANTILE**2 / len(known)
        middle = (share + square / 2) / (1 + square)
        half = _QUANTILE * sqrt(share * (1 - share) / len(known) + square / len(known) / 4) / (1 + square)
        print(f"{sum(known)} of {len(known)} inside their intervals ({middle - half:.0%} to {middle + half:.0%})")


if __name__ == "__main__":
    main()
