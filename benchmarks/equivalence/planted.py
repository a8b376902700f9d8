"""Plant every fault in every strategy of every framework where it can exist, and see whether the check refuses it.

::

    python benchmarks/equivalence/planted.py OUT.jsonl [--frameworks pytorch mxnet] [--faults …] [--table]

Appends a line of JSON per fault, framework and strategy, and goes on where an earlier run ended. ``--table`` writes the
table of OUT.jsonl to planted.csv and runs nothing. Most faults are another job than the one that was asked for; the
others change primitives of the framework, as the ``contract.py`` in its folder plants them. ``planted_adapter.py``
replaces the adapter in the run folder.
"""

import argparse
import csv
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from configurations import (
    Bench,
    configurations,
    installed,
    loading,
    small_llama,
    small_transformer,
    small_workload,
)

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import Manifest, TrainingSetting, load_manifests
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.layers import Workload
from steptime.study.trial import Trial
from steptime.worker.framework import CLIPPED_APART

_HERE = Path(__file__).parent
_TABLE = _HERE / "planted.csv"


@dataclass(frozen=True)
class Fault:
    """One fault, and where it can be planted."""

    name: str

    def trial(self, trial: Trial) -> Trial:
        """Return what is checked while the fault is planted."""
        return trial.model_copy(update=OF_TRAINING.get(self.name, {}))

    def exists(self, trial: Trial) -> bool:  # noqa: C901, PLR0911, PLR0912 - a line per kind of fault
        """Whether this strategy of this framework can have it."""
        strategy, name = STRATEGIES[trial.strategy], self.name
        own = small_transformer if name in OF_TRANSFORMERS else small_llama if name in OF_LLAMA else small_workload
        if trial.workload != own().name:
            return False
        if name in load_manifests()[trial.framework].contract.without_faults:
            return False
        if name in _OF_LOADERS:
            return strategy.name in {"allreduce", "ps_sync"}  # one check stands for all strategies
        if name in {"server applies a push twice", "a worker sends zeros"}:
            return strategy.servers
        if name == "async worker never pulls":
            return strategy.answer == "any_order"
        if name == "stale weights by one step":
            return strategy.answer != "any_order"  # to which it is right
        manifest = load_manifests()[trial.framework]
        if any(manifest.without_training_setting(each, strategy.name) for each in _later(self.trial(trial))):
            return False
        if name == CLIPPED_APART:
            return strategy.name == "allreduce"  # the only one by which all have whole gradients
        if name in _OF_AN_EXCHANGE and strategy.single_baseline:
            return False
        if name == "sum instead of mean":
            return strategy.answer in {"mean", "error_feedback"}
        if name == "gradients divided twice":
            return strategy.answer != "blocks"  # which exchanges weights
        if name == "update before the exchange ends":
            return strategy.answer != "any_order"
        if name == "gradient of one array not exchanged":
            return strategy.answer in {"mean", "any_order"}
        return True


OF_TRANSFORMERS = (
    "causal mask missing",
    "head untied",
    "heads joined into one",
    "a residual forgotten",
    "targets not shifted",
)
"""Planted in a network of their own, alone: what is exchanged is the same for all networks."""
OF_LLAMA = (
    "rotary angles shifted by one",
    "rotary pairs of neighbours",
    "causal mask of shared heads missing",
    "shared heads in the wrong order",
    "RMS norm without epsilon",
    "RMS norm less the mean",
)
"""Planted likewise, in a network with shared heads of keys and values."""
OF_TRAINING = {
    "weight decay on biases": {"optimizer": Optimizer(name="adamw", weight_decay=0.1, decayed="matrices")},
    CLIPPED_APART: {"optimizer": Optimizer(name="adamw", clip_norm=1.0)},
    "accumulation forgets to divide": {"accumulation": 4},
}
"""Planted where a setting of training is asked for: the fields of the trial that ask for it."""
_OF_LOADERS = {"loader gives a sample twice", "loader drops batches", "loader mixes labels up"}
_OF_AN_EXCHANGE = {
    "gradient of one array not exchanged",
    "gradients divided twice",
    "sum instead of mean",
    "one worker's data doubled",
    "update before the exchange ends",
}


FAULTS = [
    Fault("gradient of one array not exchanged"),
    Fault("gradients divided twice"),
    Fault("sum instead of mean"),
    Fault("rate 10 % off"),
    Fault("momentum missing"),
    Fault("weight decay missing"),
    Fault("one worker's data doubled"),
    Fault("stale weights by one step"),
    Fault("update before the exchange ends"),
    Fault("dropout left on"),
    Fault("last layer frozen"),
    Fault("server applies a push twice"),
    Fault("a worker sends zeros"),
    Fault("async worker never pulls"),
    Fault("padding on the wrong side"),
    Fault("loader gives a sample twice"),
    Fault("loader drops batches"),
    Fault("loader mixes labels up"),
    *map(Fault, OF_TRAINING),
    *map(Fault, OF_TRANSFORMERS + OF_LLAMA),
]


def _later(trial: Trial) -> list[TrainingSetting]:
    """Return the settings of training by which a trial goes beyond what every framework has."""
    asked = {**trial.optimizer.model_dump(), **({"accumulation": 0} if trial.accumulation > 1 else {})}
    return [name for name in get_args(TrainingSetting) if name in asked]


def planted_manifest(manifest: Manifest, fault: str, folder: Path, adapter: str = "planted_adapter.py") -> Manifest:
    """Return ``manifest`` with a copy of the framework's folder in which ``adapter`` plants ``fault``."""
    copied = folder / manifest.name
    shutil.copytree(manifest.folder, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "adapter.py").rename(copied / "unplanted.py")
    shutil.copy(_HERE / "planted_adapter.py", copied)  # of which other adapters take faults
    shutil.copy(_HERE / adapter, copied / "adapter.py")
    (copied / "plant.json").write_text(json.dumps({"fault": fault}))
    return manifest.model_copy(update={"folder": copied})


def cells(frameworks: Sequence[str], faults: Sequence[str]) -> Iterator[tuple[Fault, Trial]]:
    """Yield every fault with every strategy that can have it."""
    for trial in (*configurations(frameworks, [1, 2], workload=small_workload()), *transformers(frameworks)):
        if trial.workers == 1 and trial.strategy != "single":
            continue
        yield from ((each, each.trial(trial)) for each in FAULTS if each.name in faults and each.exists(trial))


def transformers(frameworks: Sequence[str]) -> list[Trial]:
    """Return one worker of each small transformer for every framework that can train one."""
    able = [name for name in frameworks if not load_manifests()[name].without_transformers]
    networks = (small_transformer(), small_llama())
    found = [each for network in networks for each in configurations(able, [1], network)]
    return [each for each in found if each.strategy == "single"]


def workload_of(trial: Trial) -> Workload:
    """Return the network that a trial of ``cells`` trains."""
    return next(each for each in (small_workload(), small_transformer(), small_llama()) if each.name == trial.workload)


def main() -> None:
    """Run the cells that are left, and print each."""
    arguments = _parse()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    if arguments.table:
        _write_table(done)
        return
    known = {(each["fault"], each["framework"], each["strategy"]) for each in done}
    bench = Bench(arguments.frameworks, steps=6)
    for fault, trial in cells(arguments.frameworks, arguments.faults):
        if (fault.name, trial.framework, trial.strategy) in known:
            continue
        line = {"fault": fault.name, "framework": trial.framework, "strategy": trial.strategy}
        line |= _plant(bench, fault, trial)
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        verdict = "caught" if line["caught"] else "MISSED"
        print(f"{verdict} {fault.name:38} {trial.framework:20} {trial.strategy:15} {line['reason']}", flush=True)


def _plant(bench: Bench, fault: Fault, trial: Trial) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        executor = bench.executor
        planted = planted_manifest(executor.manifests[trial.framework], fault.name, Path(folder))
        manifests = {**executor.manifests, trial.framework: planted}
        faulty = replace(executor, manifests=manifests)
        if fault.name in _OF_LOADERS:
            result = bench.check_loader(loading(trial, "digits"), faulty)
        else:
            result = bench.check(trial, faulty, workload_of(trial))
    wall_s = time.monotonic() - started
    numbers = ("differs from", "away", "instead of")
    failed = (result.reason or "") and not any(words in result.reason or "" for words in numbers)
    return {"caught": not result.passed, "crashed": bool(failed), "reason": result.reason, "wall_s": wall_s}


def _write_table(done: Sequence[dict[str, Any]]) -> None:
    """Write the table of all faults: a row for each strategy of a framework, a column for each fault."""
    found = {(each["framework"], each["strategy"], each["fault"]): each for each in done}
    trials = {(each.framework, each.strategy): each for each in configurations(installed(), [1, 2], small_workload())}
    able = {each.framework for each in transformers(installed())}
    with _TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["framework", "strategy", *(fault.name for fault in FAULTS)])
        for framework, strategy in sorted({*trials, *(key[:2] for key in found)}):
            marks = []
            for fault in FAULTS:
                cell = found.get((framework, strategy, fault.name))
                possible = (framework, strategy) in trials and fault.exists(trials[framework, strategy])
                of_transformers = fault.name in OF_TRANSFORMERS + OF_LLAMA
                possible = possible or (of_transformers and strategy == "single" and framework in able)
                marks.append(_mark(cell) if cell else ("not run" if possible else ""))
            writer.writerow([framework, strategy, *marks])
    caught = sum(each["caught"] and not each["crashed"] for each in found.values())
    crashed = sum(each["crashed"] for each in found.values())
    print(
        f"{caught} of {len(found)} planted faults were caught by their numbers, {crashed} by a launch that failed, "
        f"{len(found) - caught - crashed} were missed"
    )


def _mark(cell: dict[str, Any]) -> str:
    if cell["crashed"]:
        return "failed"
    return "caught" if cell["caught"] else "missed"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frameworks", nargs="+", default=installed())
    parser.add_argument("--faults", nargs="+", default=[each.name for each in FAULTS])
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
