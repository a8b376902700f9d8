"""Start real processes of a framework for a test, and read back what they wrote."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preloading import preloaded_interpreter

import steptime
from steptime.catalog.accelerators import Accelerators, find_accelerators
from steptime.catalog.manifest import Manifest, OptionValue, load_manifests
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.table import build_workload
from steptime.execution import jobs
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import launcher_named
from steptime.runner.preparation import ready_interpreter
from steptime.study.trial import Trial

Weights = dict[str, np.ndarray]
SCRIPTED = Path(__file__).with_name("scripted_adapter.py")


@dataclass(frozen=True)
class LaunchResult:
    """What the processes of one launch left in its run folder."""

    folder: Path
    outcome: LaunchOutcome
    records: dict[str, list[dict[str, Any]]]
    """Lines by process: ``worker-0``, ``server-0``, …"""
    weights: dict[int, Weights]
    """Of the ranks that saved any, by rank."""
    seen: dict[int, Weights]
    """What the script's actions got from each worker's session, by rank."""
    stderr: dict[str, str]

    def record(self, kind: str, process: str = "worker-0") -> dict[str, Any]:
        """Return the one record of a kind; a launch without it fails the test with every process's last words."""
        found = [record for record in self.records.get(process, []) if record["kind"] == kind]
        if len(found) != 1:
            pytest.fail(f"{len(found)} records of kind {kind!r} from {process}\n{self.explanation()}")
        return found[0]

    def explanation(self) -> str:
        """Say how the launch ended and what each process said last."""
        lines = [f"outcome: {self.outcome.reason or 'ok'}"]
        lines += [
            f"{name}: {record['error']}: {record['message']}"
            for name, records in self.records.items()
            for record in records
            if record["kind"] == "error"
        ]
        lines += [f"{name} stderr:\n{text[-2000:]}" for name, text in self.stderr.items() if text.strip()]
        return "\n".join(lines)


def interpreter_for(framework: str, loader: str = "synthetic", device: str = "cpu") -> Path:
    """Return the Python of a framework's environment, which has a loader's packages, or skip the test with the reason.

    ``STEPTIME_TEST_PYTHON_<NAME>`` names one; otherwise a ready environment of steptime's own cache is used. Tests
    never install one: ``steptime env create`` does. Where the machine has CUDA devices, ``cuda`` is an environment
    with a build for them; elsewhere a test of it is about what is refused.
    """
    if load_manifests()[framework].environment == "core":
        return Path(sys.executable)
    variable = f"STEPTIME_TEST_PYTHON_{framework.upper()}"
    own = loader in load_manifests()[framework].loader_environments
    if not own and (given := os.environ.get(variable)):
        if not Path(given).exists():
            pytest.fail(f"{variable} names {given}, which does not exist")
        return Path(given)
    found = find_accelerators() if device == "cuda" else Accelerators()
    if len(found):
        return _interpreter_on(found, framework, loader)
    ready = ready_interpreter(framework, loader=loader)
    if ready is None and own:
        pytest.skip(f"no environment for {framework} with {loader}: run 'steptime env create {framework}-{loader}'")
    if ready is None:
        pytest.skip(f"no environment for {framework}: run 'steptime env create {framework}' or set {variable}")
    return ready


def interpreter_with(framework: str, packages: Sequence[str], folder: Path) -> Path:
    """Return a Python made in ``folder`` that has a framework's environment and ``packages``, without their own."""
    theirs, added, made = interpreter_for(framework), folder / "added", folder / "venv" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "-q", "--no-deps", "--python", theirs, "--target", added, *packages], check=True
    )
    subprocess.run([theirs, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    own = "import sysconfig; print(sysconfig.get_path('purelib'))"
    of_theirs, of_made = (
        subprocess.run([each, "-c", own], check=True, capture_output=True, text=True).stdout.strip()
        for each in (theirs, made)
    )
    (Path(of_made) / "libraries.pth").write_text(f"{added}\n{of_theirs}\n")
    return made


def _interpreter_on(found: Accelerators, framework: str, loader: str) -> Path:
    manifest = load_manifests()[framework]
    if manifest.cuda_build(found) is None:
        pytest.skip(manifest.no_cuda_reason(found))
    ready = ready_interpreter(framework, device="cuda", accelerators=found, loader=loader)
    if ready is None:
        name = f"{framework}-{loader}" if loader in manifest.loader_environments else framework
        pytest.skip(f"no environment: steptime env create {name} --device cuda")
    return ready


def printed_in(framework: str, code: str, **values: Any) -> Any:
    """Run ``code`` with ``values`` as variables where the framework is imported; return the JSON it prints last."""
    begin = f"import json, os, sys\nsys.path.insert(0, {str(Path(steptime.__file__).parents[1])!r})\n"
    begin += f"globals().update(json.loads({json.dumps(json.dumps(values))}))\n"
    python = preloaded_interpreter(framework, interpreter_for(framework))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "asked.py").write_text(f"{begin}{code}\nsys.stdout.flush()\n")  # a copy ends at once
        how: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "STEPTIME_ROLE": "worker"}}
        done = subprocess.run([python, "asked.py"], **how, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def launch(  # noqa: PLR0913 - each is one degree of freedom of a launch
    folder: Path,
    job: Mapping[str, Any],
    *,
    workers: int = 1,
    servers: int = 0,
    python: Path | None = None,
    cores: tuple[int, ...] = (),
    cores_per_worker: int | None = None,
    time_limit_s: float = 120.0,
    preloaded: bool = False,
    script: Sequence[tuple[int, str, Any]] = (),
) -> LaunchResult:
    """Put ``job`` into a new folder below ``folder``, run it with the strategy's own launcher, and read it back.

    Args:
        folder: usually ``tmp_path``.
        job: as docs/worker-protocol.md has it; its ``framework`` and ``strategy`` choose launcher and roles.
        workers: how many.
        servers: how many, where the strategy has any.
        python: interpreter; None finds the framework's own, or skips.
        cores: to pin workers to; empty leaves them unpinned.
        cores_per_worker: how many of them each is pinned to; None for as many as it has threads.
        time_limit_s: after which all processes are ended and the launch counts as failed.
        preloaded: whether workers may start with the framework imported, where a test is about what they compute.
        script: what each worker's session is to do between its steps, as ``scripted_adapter.py`` says.
    """
    manifest = load_manifests()[job["framework"]]
    support = manifest.strategies[job["strategy"]]
    loader = job.get("loader", {}).get("kind", "synthetic")
    interpreter = python or interpreter_for(manifest.name, loader, job["device"])
    run_folder = folder / f"launch-{len(list(folder.glob('launch-*')))}"
    scripted = {**job, "script": script, "learns": True} if script else {**job, "script": script}
    make_run_folder(run_folder, manifest.folder, scripted, manifest.libraries, manifest.name)
    if script:
        adapter = run_folder / "steptime" / "frameworks" / manifest.name / "adapter.py"
        adapter.rename(adapter.with_name("scripted.py"))
        adapter.write_text(SCRIPTED.read_text())
    request = Request(
        folder=run_folder,
        interpreter=interpreter,
        workers=workers,
        servers=servers,
        scheduler=support.scheduler,
        threads=job["threads"],
        cores=cores,
        cores_per_worker=cores_per_worker,
        time_limit_s=time_limit_s,
    )
    declared = {name: value for name, value in job["options"].items() if name in manifest.options}
    launcher = launcher_named(manifest.launcher_for(job["strategy"], declared))
    own = loader in manifest.loader_environments or job["device"] == "cuda"
    if preloaded and not own and launcher.name == "local":
        request = replace(request, interpreter=preloaded_interpreter(manifest.name, interpreter, job["threads"]))
    return _read_back(run_folder, launcher.run(request))


def launch_ok(folder: Path, job: Mapping[str, Any], **how: Any) -> LaunchResult:
    """Launch, and fail the test with every process's last words unless all workers reached their end."""
    result = launch(folder, job, **how)
    workers = [name for name in result.records if name.startswith("worker")]
    ended = [name for name in workers if any(record["kind"] == "done" for record in result.records[name])]
    if not result.outcome.ok or len(ended) != how.get("workers", 1):
        pytest.fail(f"{job['framework']} {job['strategy']}: {result.explanation()}")
    return result


def check_job(
    framework: str,
    strategy: str,
    workload: str | Workload,
    *,
    steps: int = 5,
    **fields: Any,
) -> dict[str, Any]:
    """Return the job of the equivalence check: ``steps`` steps on known batches, losses and weights kept.

    Args:
        framework: by its name.
        strategy: one of the framework's.
        workload: a name in the library, or a workload.
        steps: how many.
        fields: see ``trial_of``; besides, ``input_shape`` and ``classes`` of a named workload.
    """
    built = _workload(workload, fields)
    return jobs.check_job(trial_of(framework, strategy, built, **fields), built, (1,) * steps, save_weights=True)


def timing_job(  # noqa: PLR0913 - each is one degree of freedom of a timing run
    framework: str,
    strategy: str,
    workload: str | Workload,
    *,
    loader: Mapping[str, Any] | None = None,
    warmup_steps: int = 2,
    steps: int = 5,
    **fields: Any,
) -> dict[str, Any]:
    """Return a job that times exactly ``steps`` steps, fed by ``loader`` (synthetic where None)."""
    built = _workload(workload, fields)
    schedule = jobs.TimingSchedule(warmup_steps=warmup_steps, seconds=0.0, min_steps=steps, max_steps=steps)
    fed_by = loader or {"kind": "synthetic", "distinct_batches": 1}
    return jobs.timing_job(trial_of(framework, strategy, built, **fields), built, fed_by, schedule)


def trial_of(  # noqa: PLR0913 - a trial has this many fields
    framework: str,
    strategy: str,
    workload: Workload,
    *,
    batch: int = 8,
    workers: int = 1,
    options: Mapping[str, OptionValue] | None = None,
    precision: str = "fp32",
    device: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    optimizer: Mapping[str, Any] | None = None,
    accumulation: int = 1,
) -> Trial:
    """Return a trial whose options are the framework's defaults, but for those given."""
    return Trial(
        framework=framework,
        strategy=strategy,
        workload=workload.name,
        input_shape=workload.input_shape,
        classes=workload.classes,
        dataset=None,
        loader="synthetic",
        device=device,
        precision=precision,
        workers=workers,
        batch_per_worker=batch,
        threads=threads,
        options=_options(load_manifests()[framework], strategy, options or {}),
        optimizer=Optimizer(**(optimizer or {})),
        seed=seed,
        accumulation=accumulation,
    )


def relative_error(value: Any, expected: Any) -> float:
    """Return the largest distance, relative to the largest expected magnitude."""
    value, expected = np.asarray(value, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert value.shape == expected.shape, f"shapes differ: {value.shape} and {expected.shape}"
    assert np.all(np.isfinite(value)), "a value is not finite"
    return float(np.max(np.abs(value - expected)) / max(float(np.max(np.abs(expected))), 1e-30))


TOLERANCES = {
    "fp32": {"first_loss": 1e-4, "last_loss": 1e-2, "weights": 1e-4, "update": 1e-2},
    "bf16": {"first_loss": 2e-2, "last_loss": 1e-1, "weights": 5e-2, "update": 0.5},
}
"""How far losses and weights may be from the reference's after a few steps of a shallow workload."""


def weight_error(weights: Weights, expected: Weights) -> tuple[float, str]:
    """Return the largest distance of a weight, relative to the largest of its array but not below 0.01, and the array.

    An array that starts at zero has only noise to be relative to.
    """
    assert sorted(weights) == sorted(expected)
    worst, where = 0.0, ""
    for name, truth in expected.items():
        assert weights[name].shape == truth.shape, name
        distance = np.abs(weights[name].astype(np.float64) - truth).max() / max(1e-2, np.abs(truth).max())
        if not distance <= worst:
            worst, where = float(distance), name
    return worst, where


def update_error(weights: Weights, expected: Weights, initial: Weights) -> tuple[float, str]:
    """Return the largest Euclidean distance of an update since ``initial``, relative to it, and its array."""
    assert sorted(weights) == sorted(expected)
    worst, where = 0.0, ""
    for name, truth in expected.items():
        update = np.linalg.norm(truth.astype(np.float64) - initial[name])
        distance = np.linalg.norm(weights[name].astype(np.float64) - truth) / max(update, 1e-9)
        if not distance <= worst:
            worst, where = float(distance), name
    return worst, where


def weight_errors(weights: Weights, expected: Weights) -> dict[str, float]:
    """Return the relative error of every array; names must agree."""
    assert sorted(weights) == sorted(expected)
    return {name: relative_error(weights[name], expected[name]) for name in expected}


def library_workload(name: str, **parameters: Any) -> Workload:
    """Return a workload of the library, built for ``parameters``."""
    return build_workload(name, **parameters)


def _workload(workload: str | Workload, fields: dict[str, Any]) -> Workload:
    """Build a named workload, taking its own parameters out of ``fields``."""
    if isinstance(workload, Workload):
        return workload
    own = {name: fields.pop(name) for name in ("input_shape", "classes") if name in fields}
    return build_workload(workload, **own)


def _options(manifest: Manifest, strategy: str, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    applying = manifest.options_for(strategy)
    assert set(given) <= set(applying), f"{manifest.name} {strategy} has the options {sorted(applying)}"
    return {name: given.get(name, option.default) for name, option in applying.items()}


def _read_back(folder: Path, outcome: LaunchOutcome) -> LaunchResult:
    records = {
        # A process that is killed may leave half a line, which readers pass over.
        path.stem: [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        for path in folder.glob("*-*.jsonl")
    }
    weights, seen = _arrays(folder, "weights"), _arrays(folder, "seen")
    stderr = {path.stem: path.read_text(errors="replace") for path in sorted(folder.glob("*.launch"))}
    for path in sorted(folder.glob("*.err")):
        stderr[path.stem] = stderr.get(path.stem, "") + path.read_text(errors="replace")
    return LaunchResult(folder, outcome, records, weights, seen, stderr)


def _arrays(folder: Path, stem: str) -> dict[int, Weights]:
    found = {}
    for path in folder.glob(f"{stem}-*.npz"):
        with np.load(path) as file:
            found[int(path.stem.split("-")[1])] = dict(file)
    return found
