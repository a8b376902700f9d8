"""PyTorch's framework folder with a cause planted in it, and the breakdown of the step that it then trains."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulating import skip_where_impossible
from launching import interpreter_for, library_workload, trial_of

from steptime.analysis.ablation.breakdown import break_down
from steptime.analysis.ablation.form import StepBreakdown
from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.manifest import load_manifests
from steptime.execution.executor import Executor
from steptime.execution.host import usable_cores
from steptime.execution.jobs import AblationSchedule
from steptime.execution.progress import Silent
from steptime.results.ablation_records import AblationLaunch
from steptime.runner.block_runner import BlockRunner, Schedule, StoppingRule
from steptime.runner.preparation import environment_spec, prepare_environments
from steptime.runner.trial_runs import TrialInputs, ablation_runs

PLANT = (Path(__file__).parent / "planted_adapter.py").read_text()


def folder_with(folder: Path, cause: dict[str, Any] | None) -> Path:
    """Copy PyTorch's folder into ``folder``, with ``cause`` planted; the framework cannot tell it from the real one."""
    original = load_manifests()["pytorch"].folder
    if cause is None:
        return original
    copied = folder / "pytorch"
    shutil.copytree(original, copied)
    (copied / "adapter.py").rename(copied / "trained.py")
    (copied / "adapter.py").write_text(PLANT)
    (copied / "plant.json").write_text(json.dumps(cause))
    return copied


@dataclass(frozen=True)
class Plant:
    """What was planted, and what was then seen."""

    breakdown: StepBreakdown
    launches: Sequence[AblationLaunch]
    folder: Path

    def noise(self) -> list[str]:
        """Return what else the machine did during the launches."""
        flags = {flag for launch in self.launches for flag in launch.flags}
        return sorted(flag for flag in flags if flag.startswith(("noisy", "throttled")))

    def planted_s(self) -> float:
        """Return how long the pauses of the first launch lasted on average, by the planted code's own clock."""
        files = self.folder.glob("trials/*/ablation-0/planted-*.txt")
        lasted = [float(line) for path in files for line in path.read_text().splitlines()]
        assert lasted
        return sum(lasted) / len(lasted)

    def bandwidth_bytes_per_s(self) -> float:
        """Return the least bandwidth that was measured between two hosts before training."""
        clusters = [launch.cluster for launch in self.launches if launch.cluster]
        return min(path["bandwidth_bits_per_s"] / 8 for cluster in clusters for path in cluster["paths"])


def two_hosts(**settings: Any) -> Cluster:
    """Return two hosts of one worker each; skips where hosts cannot be emulated."""
    skip_where_impossible()
    return cluster_for(workers=2, own_servers=0, **settings)


def breakdown_of(  # noqa: PLR0913 - what a cause may be planted in
    folder: Path,
    workload: str,
    *,
    batch: int,
    workers: int = 1,
    cause: dict[str, Any] | None = None,
    cluster: Cluster | None = None,
    launches: int = 2,
    seconds: float = 4.0,
    **options: bool | float | str,
) -> Plant:
    """Train ``workload`` in PyTorch for real and break its step down; skips where PyTorch is not installed.

    Args:
        folder: a new one, for run folders.
        workload: from the library.
        batch: of each worker.
        workers: how many.
        cause: what is planted, see ``planted_adapter.py``; None for the framework as it is.
        cluster: the hosts to emulate; None trains on this one.
        launches: in fresh processes.
        seconds: of each.
        options: of the framework.
    """
    interpreter_for("pytorch")
    manifest = load_manifests()["pytorch"]
    manifest = manifest.model_copy(update={"folder": folder_with(folder, cause)})
    prepared = prepare_environments([environment_spec(manifest)], Silent())
    built = library_workload(workload)
    plain = trial_of(
        "pytorch", "single" if workers == 1 else "allreduce", built, batch=batch, workers=workers, options=options
    )
    trial = plain.model_copy(
        update={"launcher": "local", "cluster": None}
        if cluster is None
        else {"launcher": "emulated", "cluster": cluster, "hosts": len(cluster.hosts)}
    )
    kept: list[AblationLaunch] = []
    executor = Executor({"pytorch": manifest}, prepared.environments, usable_cores(), 200.0)
    inputs = TrialInputs(folder, {trial.id: built}, {trial.id: {"kind": "synthetic", "distinct_batches": 4}})
    runs = ablation_runs(inputs, AblationSchedule(warmup_steps=4, seconds=seconds))
    BlockRunner(executor, runs, kept.append, Silent()).run(Schedule([trial], StoppingRule(launches, launches), "0"))
    assert [each.reason for each in kept] == [None] * launches
    found = break_down(trial, kept, [])
    assert found is not None
    return Plant(found, kept, folder)
