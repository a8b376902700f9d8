"""Check frameworks as they are, again and again, in both tiers: none of them may be refused.

::

    python benchmarks/equivalence/right_runs.py OUT.jsonl --runs 200 [--frameworks pytorch mxnet] [--workers 1 2 3]

Appends one line of JSON per check and goes on where an earlier run ended; prints how many were refused, and why.
"""

import argparse
import json
import shutil
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

from configurations import Bench, configurations, installed, loading, small_workload

from steptime.catalog.workloads.table import build_workload

ARRANGEMENTS = ("allreduce", "ps_sync", "ps_async")
"""The strategies under which loaders are checked, of which each framework has one at least."""


def main() -> None:
    """Run the checks and print each."""
    arguments = _parse()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    bench = Bench(arguments.frameworks)
    # Some settings of the tier ``tuned`` are read when a framework is imported: such workers start as users start them.
    as_usual = replace(bench.executor, environments=dict(bench.environments))
    shape, named = tuple(arguments.shape) or None, arguments.workload
    workloads = {
        count: small_workload(count) if named == "small" else build_workload(named, shape, count)
        for count in arguments.classes
    }
    trials = [
        trial
        for workload in workloads.values()
        for trial in configurations(arguments.frameworks, arguments.workers, workload, arguments.tiers)
    ]
    if arguments.datasets:
        chosen = [each for each in trials if each.strategy in ARRANGEMENTS and each.tuning == "documented"]
        trials = [loading(each, name) for each in chosen for name in arguments.datasets]
    Random(0).shuffle(trials)  # noqa: S311 - so that the first ones are of all frameworks
    trials = [each.model_copy(update={"precision": arguments.precision}) for each in trials]
    for number, unseeded in enumerate(cycle(trials)):
        if number >= arguments.runs:
            break
        if number < len(done):
            continue
        started = time.monotonic()
        executor = as_usual if unseeded.tuning == "tuned" else None
        trial = unseeded.model_copy(update={"seed": number // len(trials)})
        if trial.dataset:
            result = bench.check_loader(trial, executor)
        else:
            result = bench.check(trial, executor, workloads[trial.classes])
        shutil.rmtree(bench.scratch, ignore_errors=True)
        line = {
            **result.to_json(),
            "tuning": trial.tuning,
            "wall_s": time.monotonic() - started,
            "seed": number // len(trials),
            "classes": trial.classes,
        }
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{number:4} {trial.framework:20} {trial.strategy:15} {trial.dataset or trial.tuning:10} "
            f"{trial.classes} classes {trial.workers} workers "
            f"{'passed ' if result.passed else 'REFUSED'} {line['wall_s']:6.1f} s  "
            f"gradient {result.gradient_error or 0:.1e}/{result.gradient_rounding or 0:.1e}  "
            f"update {result.update_error or 0:.1e}/{result.update_rounding or 0:.1e}  "
            f"rounds {result.rounds} rate {result.learning_rate} {result.reason or ''}",
            flush=True,
        )
        done.append(line)
    refused = [each for each in done if not each["passed"]]
    print(f"{len(refused)} of {len(done)} right runs refused, {sum(each['rounds'] for each in done)} rounds")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--frameworks", nargs="+", default=installed())
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--datasets", nargs="+", default=[], help="check native loaders of these instead of training")
    parser.add_argument("--tiers", nargs="+", default=["documented", "tuned"])
    parser.add_argument("--workload", default="lenet5", help="of the library, or small")
    parser.add_argument("--classes", type=int, nargs="+", default=[10])
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--shape", type=int, nargs="+", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
