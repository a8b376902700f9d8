"""Time right frameworks, repeat their steps without a clock, and see whether any launch is refused.

::

    python benchmarks/equivalence/right_timed.py [OUT.jsonl] [--runs 300] [--frameworks pytorch mxnet]

Every strategy of every framework that is installed, with one to four workers and networks of 2, 3 and 10 classes, in
random order. Appends a line of JSON per run and goes on where an earlier run ended; none may be refused.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configurations import Bench, configurations, installed, loading
from planted_timed import Timed, rules

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.workloads.table import build_workload
from steptime.execution.jobs import TimingSchedule
from steptime.study.trial import Trial
from steptime.validity.training_evidence import EarlyLosses, early_losses
from steptime.validity.verdicts import deviating

_HERE = Path(__file__).parent
_CLASSES = (2, 3, 10)
_WORKERS = (1, 2, 3, 4)
_SCHEDULE = TimingSchedule(warmup_steps=5, seconds=1.0, min_steps=20, max_steps=60)
_ROUNDING = 7e-6
"""Of an update of LeNet-5, as its equivalence checks record it."""


def trials_of(frameworks: Sequence[str]) -> Iterator[Trial]:
    """Yield every configuration; those of 10 classes read digits, the others random batches."""
    for classes in _CLASSES:
        workload = build_workload("lenet5", (1, 28, 28), classes)
        for trial in configurations(frameworks, _WORKERS, workload):
            yield loading(trial, "digits") if classes == max(_CLASSES) else trial


def run(timed: Timed, trial: Trial) -> dict[str, Any]:
    """Return the line of one run."""
    started = time.monotonic()
    launch = timed.launch(trial, schedule=_SCHEDULE)
    replays = timed.replays(trial, launch, nudged=False) if launch.status == "ok" else []
    found = rules(trial, launch, [], replays) if launch.status == "ok" else {"launch": launch.reason}
    kept = {str(step): list(map(list, each)) for step, each in early_losses(trial, [launch]).by_steps.items()}
    return {
        "framework": trial.framework,
        "strategy": trial.strategy,
        "workers": trial.workers,
        "classes": trial.classes,
        "trial": trial.model_dump(mode="json", exclude={"id"}),
        "status": launch.status,
        "refused": found,
        "replays": len(replays),
        "losses": kept,
        "wall_s": round(time.monotonic() - started, 1),
    }


def main() -> None:
    """Do the runs that are left, and count what was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=_HERE / "right-timed.jsonl")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--frameworks", nargs="+", default=installed())
    arguments = parser.parse_args()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    timed = Timed(Bench(arguments.frameworks))
    trials = list(trials_of(arguments.frameworks))
    random.Random(0).shuffle(trials)  # noqa: S311 - so that the first ones are of all frameworks
    known = {Trial(**each["trial"]).id for each in done}
    for trial in [each for each in trials if each.id not in known][: arguments.runs - len(done)]:
        line = run(timed, trial)
        done.append(line)
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        what = f"{trial.framework:20} {trial.strategy:15} {trial.workers} workers {trial.classes:2} classes"
        verdict = f"REFUSED {line['refused']}" if line["refused"] else "passed"
        sys.stdout.write(f"{len(done):4} {what} {line['replays']} replays {line['wall_s']:6.1f} s  {verdict}\n")
        sys.stdout.flush()
    refused = [each for each in done if each["refused"] and each["status"] == "ok"]
    failed = sum(each["status"] != "ok" for each in done)
    others = _unlike_others(done)
    sys.stdout.write(f"{len(done)} right runs: {len(refused)} refused, {len(others)} unlike others, {failed} failed\n")


def _unlike_others(done: Sequence[dict[str, Any]]) -> dict[str, str]:
    losses = []
    for each in done:
        by_steps = {int(step): [tuple(own) for own in launches] for step, launches in each["losses"].items()}
        losses.append(EarlyLosses(Trial(**each["trial"]), by_steps))
    return deviating(losses, {each.trial.id: _ROUNDING for each in losses if STRATEGIES[each.trial.strategy].exact})


if __name__ == "__main__":
    main()
