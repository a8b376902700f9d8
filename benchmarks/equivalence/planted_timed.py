"""Plant faults that exist only where a step is timed, and see whether the timed launches give them away.

::

    python benchmarks/equivalence/planted_timed.py [OUT.csv] [--frameworks pytorch mxnet] [--faults …]

The equivalence check launches the framework by itself and sees none of these faults. Each is planted in one framework
at a time; the other frameworks' launches are honest. Four rules may find it: the record does not fit (``record``), the
workers of the launch disagree (``workers``), its replay does (``replay``), or other frameworks do (``others``). Right
launches must be found by none. A row is written as soon as its launch is over, and is not launched again.
``planted_timed_adapter.py`` replaces the adapter in the run folder.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from configurations import Bench, installed, loading, trial_of
from planted_timed_adapter import ASYNCHRONOUS, FAULTS, OF_CONTRACTS, OF_EXCHANGES, OF_RATES, OF_WEIGHTS

from planted import planted_manifest
from steptime.catalog.workloads.table import build_workload
from steptime.equivalence.replay import Replays, can_replay
from steptime.execution.collected import worker_steps
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.execution.progress import Silent
from steptime.results.consistency import misfit
from steptime.results.records import Launch, Replay
from steptime.runner.preparation import loader_of, prepare_datasets, prepare_stored_form
from steptime.statistics.launch_times import launch_times
from steptime.study.trial import Trial
from steptime.validity.training_evidence import differs_from_replay, early_losses, own_mistake
from steptime.validity.verdicts import deviating

_HERE = Path(__file__).parent
_DEFAULT = ("reference", "pytorch", "chainer", "mxnet", "tensorflow")
_COLUMNS = ("framework", "strategy", "workers", "fault", "verdict", "rules", "samples_per_s", "reason")
_ROUNDING = 7e-6
"""Of an update of LeNet-5, as its equivalence checks record it."""
_SCHEDULE = TimingSchedule(warmup_steps=5, seconds=1.0, min_steps=100, max_steps=100)
_WITH_WEIGHTS = ("reference", "pytorch", "chainer", "tensorflow")
"""Whose workers hold the weights that are updated, so that a fault can change them."""
_WITH_PARTS = ("reference", "pytorch", "chainer")
"""Whose exchange can be switched off."""
_CANNOT_BE = {
    ("reference", "no exchange"),  # it averages wherever there are several workers, whatever its strategy is called
    ("reference", "arrays below 500 values not updated"),  # it holds all of them in one
    ("reference", "a loss by sum in one worker from step 20 on"),  # it computes loss and gradient at once
    ("tensorflow", "no exchange"),  # with one process for all workers there is nothing else
}


@dataclass
class Timed:
    """Timed launches of LeNet-5 on digits."""

    bench: Bench
    _replays: dict[str, list[Replay]] = field(default_factory=dict)

    def trial(self, framework: str, strategy: str | None = None, workers: int = 2) -> Trial:
        """Return the trial of a framework: by its all-reduce, or its servers where it has none."""
        manifest = self.bench.executor.manifests[framework]
        chosen = strategy or next(name for name in ("allreduce", "ps_sync") if name in manifest.strategies)
        trial = trial_of(manifest, chosen, build_workload("lenet5"), workers)
        return loading(trial.model_copy(update={"batch_per_worker": 32}), "digits")

    def loader(self, trial: Trial) -> dict[str, Any]:
        """Return the loader of a job of ``trial``."""
        if trial.dataset is None:
            return loader_of(trial, {})
        (source,) = prepare_datasets([trial.dataset], Silent()).values()
        return loader_of(trial, {source.name: prepare_stored_form(source, trial.loader, Silent())})

    def launch(self, trial: Trial, fault: str | None = None, schedule: TimingSchedule = _SCHEDULE) -> Launch:
        """Return the record of a launch of ``trial`` with ``fault`` planted."""
        workload = build_workload(trial.workload, trial.input_shape, trial.classes)
        job = timing_job(trial, workload, self.loader(trial), schedule)
        with tempfile.TemporaryDirectory(prefix="planted-timed-") as folder:
            executor = self.bench.executor
            if fault is not None:
                own = executor.manifests[trial.framework]
                planted = planted_manifest(own, fault, Path(folder), "planted_timed_adapter.py")
                executor = replace(executor, manifests={**executor.manifests, trial.framework: planted})
            result = executor.launch(trial, job, Path(folder) / "launch-0", pinned=False)
            fields = executor.record_fields(trial, result)
            workers = [] if result.reason else worker_steps(result.collected, trial.workers)
        fields |= {"trial": trial.id, "schedule": schedule.to_json(), "commands": result.outcome.commands}
        return Launch(**fields, launch=0, block=0, workers=workers)

    def replays(self, trial: Trial, launch: Launch, *, nudged: bool = True) -> list[Replay]:
        """Return the replays of a right launch, which all launches of as many steps have; none without an order.

        With ``nudged``, those with other learning rates are always among them.
        """
        if trial.id not in self._replays:
            workload = build_workload(trial.workload, trial.input_shape, trial.classes)
            scratch = self.bench.scratch / "replays"
            replays = Replays(self.bench.executor, scratch, lambda _: None, Silent())
            found = self._replays[trial.id] = []
            if can_replay(trial):
                found += replays.of(trial, workload, self.loader(trial), [launch])
            same = [each for each in found if each.nudge == 1.0]
            if len(same) == 1 and nudged:
                found += replays.beside(trial, workload, self.loader(trial), same[0].steps)
        return self._replays[trial.id]


def rules(
    trial: Trial, launch: Launch, others: Sequence[tuple[Trial, Launch]], replays: Sequence[Replay]
) -> dict[str, str]:
    """Return what finds something against a good launch, and its sentence."""
    unfit = misfit(launch, trial)
    losses = [early_losses(each, [record]) for each, record in [*others, (trial, launch)]]
    found = {
        "record": unfit.message if unfit else None,
        "workers": own_mistake(trial, launch),
        "replay": differs_from_replay(trial, launch, replays),
        "others": deviating(losses, {each.trial.id: _ROUNDING for each in losses}).get(trial.id),
    }
    return {rule: reason for rule, reason in found.items() if reason}


def faults_of(trial: Trial) -> Iterator[str]:
    """Yield the faults that a synchronous trial of two workers can have."""
    name = trial.framework
    own = (*OF_CONTRACTS,)
    own += OF_WEIGHTS if name in _WITH_WEIGHTS else ()
    own += (*OF_EXCHANGES, *OF_RATES) if name in _WITH_PARTS else ()
    yield from (fault for fault in (*FAULTS, *own) if (name, fault) not in _CANNOT_BE)


def rate_of(trial: Trial, launch: Launch) -> float | None:
    """Return the samples per second of a good launch."""
    (times,) = launch_times([launch], trial.strategy)
    return None if times is None else trial.global_batch / float(times.steady_s.mean())


def main() -> None:
    """Run the cells that are left, and write each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=_HERE / "planted-timed.csv")
    parser.add_argument("--frameworks", nargs="+", default=[name for name in _DEFAULT if name in installed()])
    parser.add_argument("--faults", nargs="+", help="only these; all where it is left out")
    arguments = parser.parse_args()
    done = _read(arguments.out)
    known = {(row["framework"], row["strategy"], row["workers"], row["fault"]) for row in done}
    timed = Timed(Bench(arguments.frameworks))
    cells = [(timed.trial(name), [None, *faults_of(timed.trial(name))]) for name in arguments.frameworks]
    honest = [(trial, timed.launch(trial)) for trial, _ in cells]
    cells = [
        *((timed.trial(name, "ps_async"), [None, *_asynchronous(name)]) for name in ("pytorch", "mxnet", "tensorflow")),
        (timed.trial("pytorch", "allreduce", 4), [None, "no exchange"]),
        *cells,
    ]
    for trial, faults in cells:
        if trial.framework not in arguments.frameworks:
            continue
        others = [each for each in honest if each[0] is not trial and each[0].workers == trial.workers]
        right = next((launch for each, launch in honest if each is trial), None)
        for fault in faults:
            key = (trial.framework, trial.strategy, str(trial.workers), fault or "none")
            if key in known or (arguments.faults and fault and fault not in arguments.faults):
                continue
            right = right or timed.launch(trial)
            launch = right if fault is None else timed.launch(trial, fault)
            row = _row(trial, launch, rules(trial, launch, others, timed.replays(trial, right)))
            done.append({**dict(zip(_COLUMNS, key[:3], strict=False)), "fault": key[3], **row})
            _write(arguments.out, done)
            sys.stdout.write(f"{row['verdict']:7} {' '.join(key):70} {row['rules']:24} {row['reason'][:90]}\n")
            sys.stdout.flush()
    planted = [row for row in done if row["fault"] != "none"]
    found = {verdict: sum(row["verdict"] == verdict for row in planted) for verdict in ("caught", "failed", "ranked")}
    refused = sum(row["verdict"] != "ranked" for row in done if row["fault"] == "none")
    sys.stdout.write(f"{len(planted)} planted faults: {found}; {refused} right launches refused\n")


def _asynchronous(framework: str) -> Iterator[str]:
    yield from (fault for fault in ASYNCHRONOUS if framework == "pytorch" or "locally" not in fault)


def _row(trial: Trial, launch: Launch, found: Mapping[str, str]) -> dict[str, str]:
    if launch.status != "ok":
        return {"verdict": "failed", "rules": "", "samples_per_s": "", "reason": launch.reason or ""}
    rate = rate_of(trial, launch)
    return {
        "verdict": "caught" if found else "ranked",
        "rules": " ".join(found),
        "samples_per_s": "" if rate is None else f"{rate:.0f}",
        "reason": next(iter(found.values()), ""),
    }


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        return list(reader) if tuple(reader.fieldnames or ()) == _COLUMNS else []


def _write(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
