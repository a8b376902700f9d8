"""Plant a spin in one phase of a step, break the step down, and count how often its interval holds what was planted.

::

    python benchmarks/breakdown/planted_phases.py OUT.jsonl [--frameworks pytorch chainer] [--breakdowns 60]

A pause of any length lets caches cool and threads of a pool sleep, of which a phase becomes longer too. So a spin of
20 ms is compared with one of 40 ms in the same phase, in launches that take turns; the truth is the difference of the
spins as the planted code timed them, and the interval is that of the difference of both phases. ``step_found_s`` is
the same difference of whole steps, which grow by a little more than the spin: caches are colder behind a longer one.

Appends a line of JSON for each breakdown, goes on where it ended, and prints the counts with Wilson's intervals.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "equivalence"))
from configurations import small_workload, trial_of
from scipy.stats import binomtest

from planted import planted_manifest
from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import Phase
from steptime.catalog.manifest import load_manifests
from steptime.execution.executor import Executor
from steptime.execution.host import usable_cores
from steptime.execution.jobs import AblationSchedule
from steptime.execution.progress import Silent
from steptime.runner.block_runner import BlockRunner, Schedule, StoppingRule
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.runner.trial_runs import TrialInputs, ablation_runs

if TYPE_CHECKING:
    from steptime.results.ablation_records import AblationLaunch

_ADAPTER = Path(__file__).with_name("planted_phases_adapter.py")
PHASES = ("forward", "backward", "update", "input_wait")
_SPINS_S = (0.02, 0.04)
_SECONDS = 3.0


class Planted:
    """A framework with a spin of ``seconds`` in ``phase``, and the launches that broke its step down so far."""

    def __init__(self, framework: str, phase: str, seconds: float, folder: Path) -> None:
        self.folder = folder / f"{phase}-{seconds}"
        self.folder.mkdir()
        self._manifest = planted_manifest(load_manifests()[framework], phase, self.folder, str(_ADAPTER))
        (self._manifest.folder / "plant.json").write_text(json.dumps({"fault": phase, "seconds": seconds}))
        prepared = prepare_environments([environment_spec(self._manifest)], Silent())
        workload = small_workload()
        self._trial = trial_of(self._manifest, "single", workload, 1)
        executor = Executor({framework: self._manifest}, prepared.environments, usable_cores(), 300.0)
        loaders = {self._trial.id: {"kind": "synthetic", "distinct_batches": 4}}
        inputs = TrialInputs(self.folder, {self._trial.id: workload}, loaders)
        runs = ablation_runs(inputs, AblationSchedule(warmup_steps=4, seconds=_SECONDS))
        self._kept: list[AblationLaunch] = []
        self._runner = BlockRunner(executor, runs, self._kept.append, Silent())

    def launch(self) -> None:
        """Break the step down in one more launch."""
        count = len(self._kept) + 1
        kept = {self._trial.id: list(self._kept)}
        self._runner.run(Schedule([self._trial], StoppingRule(count, count), "0", kept))

    def found(self) -> tuple[dict[str, Phase | None], float, float, list[str]]:
        """Return the phases of a step, its seconds, those of the spin, and the flags of the launches."""
        found = break_down(self._trial, self._kept, [])
        if found is None:
            sys.exit(f"{self._manifest.name} was not broken down: {[each.reason for each in self._kept]}")
        files = self.folder.glob("trials/*/ablation-*/planted-*.txt")
        lasted = [float(line) for path in files for line in path.read_text().splitlines()]
        flags = sorted({flag for launch in self._kept for flag in launch.flags})
        return dict(found.phases), found.step_s.value_s, sum(lasted) / len(lasted), flags


def cells(frameworks: list[str], done: int, count: int, launches: int) -> Iterator[dict[str, Any]]:
    """Yield the breakdowns that are left, round after round: each framework with each phase planted, all in turns."""
    number = done - done % len(PHASES)
    while number < count:
        framework = frameworks[number // len(PHASES) % len(frameworks)]
        with tempfile.TemporaryDirectory(prefix="planted-phases-") as folder:
            sides = [[Planted(framework, phase, spin, Path(folder)) for spin in _SPINS_S] for phase in PHASES]
            for _ in range(launches):
                for side in itertools.chain(*sides):
                    side.launch()
            for phase, (short, long) in zip(PHASES, sides, strict=True):
                number += 1
                if done < number <= count:
                    before, short_step_s, short_s, _ = short.found()
                    phases, step_s, long_s, flags = long.found()
                    about = {"framework": framework, "phase": phase, "flags": flags}
                    difference = {"step_found_s": step_s - short_step_s}
                    yield about | difference | judged(phases[phase], before[phase], long_s - short_s)


def judged(found: Phase | None, before: Phase | None, planted_s: float) -> dict[str, Any]:
    """Return the planted seconds beside those found, and whether they lie in the interval of the difference."""
    if found is None or before is None or None in {found.low_s, found.high_s, before.low_s, before.high_s}:
        return {"planted_s": planted_s, "found_s": None, "low_s": None, "high_s": None, "inside": None}
    value = found.value_s - before.value_s
    low = value - hypot(found.value_s - found.low_s, before.high_s - before.value_s)
    high = value + hypot(found.high_s - found.value_s, before.value_s - before.low_s)
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
    known = [each for each in done if each["inside"] is not None]
    print(_counted(sum(each["inside"] for each in known), len(known), "the spin"))
    print(_counted(sum(map(_holds_step, known)), len(known), "a value between the spin and what the step grew by"))


def _holds_step(cell: dict[str, Any]) -> bool:
    low, high = sorted((cell["planted_s"], cell["step_found_s"]))
    return bool(cell["low_s"] <= high and cell["high_s"] >= low)


def _counted(inside: int, count: int, what: str) -> str:
    if not count:
        return "nothing was broken down"
    bounds = binomtest(inside, count).proportion_ci(0.95, method="wilson")
    return f"{inside} of {count} intervals hold {what} ({bounds.low:.0%} to {bounds.high:.0%})"


if __name__ == "__main__":
    main()
