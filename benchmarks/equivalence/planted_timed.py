"""Plant faults that exist only where a step is timed, and see whether the timed launches give them away.

::

    python benchmarks/equivalence/planted_timed.py [OUT.csv] [--frameworks pytorch mxnet]

The equivalence check launches the framework by itself and sees none of these faults. Each is planted in one framework
at a time; the other frameworks' launches are honest. A fault is caught where the record is set aside, or where its
losses are away from those of the others; right launches must be used. ``planted_timed_adapter.py`` replaces the
adapter in the run folder.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from configurations import Bench, installed, loading, trial_of
from planted_timed_adapter import FAULTS

from planted import planted_manifest
from steptime.catalog.strategies import STRATEGIES
from steptime.catalog.workloads.table import build_workload
from steptime.measurements.consistency import misfit
from steptime.measurements.launch_times import launch_times
from steptime.measurements.records import Launch
from steptime.measurements.timed_training import deviating, early_losses
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.preparation import loader_of, prepare_datasets, prepare_stored_form
from steptime.runner.progress import Silent
from steptime.runner.run_folder import worker_steps
from steptime.study.trial import Trial

_HERE = Path(__file__).parent
_DEFAULT = ("reference", "pytorch", "chainer", "mxnet", "tensorflow")
_CANNOT_BE = {("reference", "no exchange")}
"""It averages wherever there are several workers, whatever its strategy is called."""
_ROUNDING = 7e-6
"""Of an update of LeNet-5, as its equivalence checks record it."""
_SCHEDULE = TimingSchedule(warmup_steps=5, seconds=1.0, min_steps=10, max_steps=400)


@dataclass
class Timed:
    """Timed launches of LeNet-5 on digits by two workers."""

    bench: Bench

    def trial(self, framework: str) -> Trial:
        """Return the trial of a framework: by its all-reduce, or its servers where it has none."""
        manifest = self.bench.executor.manifests[framework]
        strategy = next(name for name in ("allreduce", "ps_sync") if name in manifest.strategies)
        trial = trial_of(manifest, strategy, build_workload("lenet5"), 2)
        return loading(trial.model_copy(update={"batch_per_worker": 32}), "digits")

    def launch(self, trial: Trial, fault: str | None = None) -> Launch:
        """Return the record of a launch of ``trial`` with ``fault`` planted."""
        (source,) = prepare_datasets([trial.dataset or ""], Silent()).values()
        loader = loader_of(trial, {source.name: prepare_stored_form(source, trial.loader, Silent())})
        workload = build_workload(trial.workload, trial.input_shape, trial.classes)
        job = timing_job(trial, workload, loader, _SCHEDULE)
        with tempfile.TemporaryDirectory(prefix="planted-timed-") as folder:
            executor = self.bench.executor
            if fault is not None:
                own = executor.manifests[trial.framework]
                planted = planted_manifest(own, fault, Path(folder), "planted_timed_adapter.py")
                executor = replace(executor, manifests={**executor.manifests, trial.framework: planted})
            result = executor.launch(trial, job, Path(folder) / "launch-0", pinned=False)
            fields = executor.record_fields(trial, result)
            workers = [] if result.reason else worker_steps(result.collected, trial.workers)
        fields |= {"trial": trial.id, "schedule": _SCHEDULE.to_json(), "commands": result.outcome.commands}
        return Launch(**fields, launch=0, block=0, workers=workers)


def verdict(trial: Trial, launch: Launch, others: Sequence[tuple[Trial, Launch]]) -> tuple[str, str]:
    """Return ``caught``, ``failed`` or ``ranked``, and the reason."""
    if launch.status != "ok":
        return "failed", launch.reason or ""
    if unfit := misfit(launch, trial):
        return "caught", unfit.message
    losses = [early_losses(each, [record]) for each, record in [*others, (trial, launch)]]
    found = deviating(losses, {each.trial.id: _ROUNDING for each in losses}).get(trial.id)
    return ("caught", found) if found else ("ranked", "")


def _rate(trial: Trial, launch: Launch) -> float | None:
    (times,) = launch_times([launch], trial.strategy)
    return None if times is None else trial.global_batch / float(times.steady_s.mean())


def main() -> None:
    """Run all faults in all frameworks and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=_HERE / "planted-timed.csv")
    parser.add_argument("--frameworks", nargs="+", default=[name for name in _DEFAULT if name in installed()])
    arguments = parser.parse_args()
    timed = Timed(Bench(arguments.frameworks))
    trials = [timed.trial(name) for name in arguments.frameworks]
    assert all(STRATEGIES[trial.strategy].exact for trial in trials)
    honest = [(trial, timed.launch(trial)) for trial in trials]
    rows = []
    for trial, right in honest:
        others = [each for each in honest if each[0] is not trial]
        for fault in (None, *(name for name in FAULTS if (trial.framework, name) not in _CANNOT_BE)):
            launch = right if fault is None else timed.launch(trial, fault)
            found, reason = verdict(trial, launch, others)
            rate = _rate(trial, launch) if launch.status == "ok" else None
            shown = "" if rate is None else f"{rate:.0f}"
            rows.append([trial.framework, trial.strategy, fault or "none", found, shown, reason])
            sys.stdout.write(f"{found:7} {trial.framework:11} {fault or 'none':42} {shown:>8} {reason[:100]}\n")
            sys.stdout.flush()
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["framework", "strategy", "fault", "verdict", "samples_per_s", "reason"])
        writer.writerows(rows)
    planted = [row for row in rows if row[2] != "none"]
    caught = sum(row[3] != "ranked" for row in planted)
    refused = sum(row[3] != "ranked" for row in rows if row[2] == "none")
    sys.stdout.write(f"{caught} of {len(planted)} planted faults not ranked; {refused} right launches refused\n")


if __name__ == "__main__":
    main()
