"""Race a framework's adapter against a plain, expert-written loop of the same framework.

::

    python benchmarks/adapters/race_plain.py pytorch lenet5 --batch 64 --workers 2 --blocks 8

Each block runs the adapter and the plain loop once, in fresh processes on the same cores, in alternating order
(AB, BA, AB, …), so that drift of the machine hits both alike. A block gives one ratio of throughputs; the blocks
are independent, so the interval is Student's on the logarithms of the ratios.

A plain loop is ``benchmarks/adapters/<framework>_plain.py`` and knows nothing of steptime::

    python <framework>_plain.py WORKLOAD BATCH STEPS WARMUP [RANK WORKERS ROOT_ADDRESS]

WORKLOAD is ``lenet5`` or ``resnet50@64`` (the image's side after the ``@``); data are synthetic and classes those
of the published workload. It prints one JSON line ``{"ends_s": [...]}`` per worker: the ends of its STEPS timed
steps on the monotonic clock. RANK is a number, or ``scheduler`` or ``server`` where the strategy has such
processes; under MPI the last three are left out, since MPI knows them. A line may also hold ``cpu_s``, the CPU seconds
of the process between the first and the last of these ends: where all loops give it, their ratio is shown too, which
other programs on the machine disturb far less than the time on the wall.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from steptime.frameworks.manifest import Manifest, load_manifests
from steptime.launchers.base import free_ports
from steptime.launchers.mpi import MpiLauncher
from steptime.launchers.process_env import inherited, pins, shared_variables
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
from steptime.runner.jobs import TimingSchedule, timing_job
from steptime.runner.preparation import ready_interpreter
from steptime.runner.run_folder import make_run_folder
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload
from steptime.workloads.table import build_workload

_HERE = Path(__file__).parent
_LEVEL = 0.95


def main() -> None:
    """Run the blocks, print each, and print the summary as one JSON line."""
    arguments = _parse()
    manifest = load_manifests()[arguments.framework]
    arguments.python = arguments.python or _interpreter(arguments.framework)
    arguments.strategy = arguments.strategy or _strategy(manifest, arguments.workers)
    adapter, plain = [], []
    for block in range(arguments.blocks):
        rivals = [(run_adapter, adapter), (run_plain, plain)]
        for run, costs in rivals if block % 2 == 0 else reversed(rivals):
            costs.append(run(arguments, manifest))
        print(f"block {block + 1}/{arguments.blocks}: {_compared(adapter[-1], plain[-1])}", file=sys.stderr, flush=True)
    print(json.dumps(_summary(arguments, adapter, plain)))


@dataclass(frozen=True)
class Cost:
    """What one step cost in one launch."""

    wall_s: float
    """Median step time, where a step ends when its slowest worker does."""
    cpu_s: float | None
    """CPU time per step of all workers together, where known."""


def run_adapter(arguments: argparse.Namespace, manifest: Manifest) -> Cost:
    """Launch the adapter once and return what a step cost."""
    workload = _workload(arguments.workload)
    trial = Trial(
        framework=manifest.name,
        strategy=arguments.strategy,
        workload=workload.name,
        input_shape=workload.input_shape,
        classes=workload.classes,
        dataset=None,
        loader="synthetic",
        device="cpu",
        precision="fp32",
        workers=arguments.workers,
        servers=arguments.servers,
        batch_per_worker=arguments.batch,
        options={name: option.default for name, option in manifest.options_for(arguments.strategy).items()},
    )
    schedule = TimingSchedule(arguments.warmup, 0.0, arguments.steps, arguments.steps)
    job = timing_job(trial, workload, {"kind": "synthetic", "distinct_batches": 1}, schedule)
    with tempfile.TemporaryDirectory() as folder:
        make_run_folder(Path(folder), manifest.folder, job, manifest.libraries, manifest.name)
        request = _request(arguments, manifest, Path(folder))
        outcome = launcher_named(manifest.strategies[arguments.strategy].launcher).run(request)
        if not outcome.ok:
            said = "\n".join(path.read_text() for path in sorted(Path(folder).glob("*.err")))
            sys.exit(f"the adapter failed: {outcome.reason}\n{said}")
        workers = [_steps_record(Path(folder) / f"worker-{rank}.jsonl") for rank in range(arguments.workers)]
    # The adapter's CPU time starts one step before the first of its ends.
    steps = arguments.steps
    return _cost(
        [{"ends_s": each["ends_s"], "cpu_s": each["usage"]["cpu_s"] * (steps - 1) / steps} for each in workers]
    )


def run_plain(arguments: argparse.Namespace, manifest: Manifest) -> Cost:
    """Launch the plain loop once on the same cores and return what a step cost."""
    request = _request(arguments, manifest, _HERE)
    ports = free_ports(1 + request.workers + request.servers)
    shared = shared_variables(request, "", "127.0.0.1", ports)
    environment = {**inherited(os.environ), **{key: shared[key] for key in shared if not key.startswith("STEPTIME_")}}
    script = [str(_HERE / f"{manifest.name}_plain.py"), arguments.workload]
    script += [str(number) for number in (arguments.batch, arguments.steps, arguments.warmup)]
    root = f"127.0.0.1:{ports[0]}"
    plans: list[tuple[list[str], tuple[int, ...]]] = []
    if manifest.strategies[arguments.strategy].launcher == "mpi":
        (mpiexec,) = MpiLauncher().plan(request, "", ports)
        until_program = mpiexec.argv[2 : mpiexec.argv.index("start.py")]  # without the tether in front
        plans.append(([*until_program, *script], ()))
    else:
        helping = ["scheduler"] * request.scheduler + ["server"] * request.servers
        for role in [*helping, *map(str, range(request.workers))]:
            tail = [role, str(request.workers), root] if request.workers > 1 or helping else []
            cores = pins(request)[int(role)] if role.isdigit() else ()
            plans.append(([str(request.interpreter), *script, *tail], cores))
    processes = [_start_on(cores, argv, environment) for argv, cores in plans]
    try:
        outputs = [process.communicate(timeout=arguments.time_limit)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if any(process.returncode for process in processes):
        sys.exit(f"the plain loop failed with {[process.returncode for process in processes]}")
    lines = [line for output in outputs for line in output.splitlines() if line.startswith("{")]
    return _cost([json.loads(line) for line in lines])


def _start_on(cores: tuple[int, ...], argv: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process on ``cores``; affinity is inherited, so that the process never runs elsewhere.

    It gets a session of its own, as the adapter's processes do: the kernel may share the cores out by sessions.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        os.sched_setaffinity(0, before)


def _request(arguments: argparse.Namespace, manifest: Manifest, folder: Path) -> Request:
    return Request(
        folder=folder,
        interpreter=arguments.python,
        workers=arguments.workers,
        servers=arguments.servers,
        scheduler=manifest.strategies[arguments.strategy].scheduler,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        time_limit_s=arguments.time_limit,
    )


def _steps_record(path: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return next(record for record in records if record["kind"] == "steps")


def _cost(workers: list[dict[str, Any]]) -> Cost:
    ends = [max(step) for step in zip(*(worker["ends_s"] for worker in workers), strict=True)]
    wall = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends))
    cpu = [worker["cpu_s"] for worker in workers if "cpu_s" in worker]
    return Cost(wall, sum(cpu) / (len(ends) - 1) if len(cpu) == len(workers) else None)


def _compared(adapter: Cost, plain: Cost) -> str:
    text = f"adapter {adapter.wall_s * 1e3:.3f} ms, plain {plain.wall_s * 1e3:.3f} ms"
    text += f", adapter/plain throughput {plain.wall_s / adapter.wall_s:.4f}"
    if adapter.cpu_s and plain.cpu_s:
        text += f", per CPU second {plain.cpu_s / adapter.cpu_s:.4f}"
    return text


def _summary(arguments: argparse.Namespace, adapter: list[Cost], plain: list[Cost]) -> dict[str, Any]:
    pairs = list(zip(adapter, plain, strict=True))
    of_cpu = [b.cpu_s / a.cpu_s for a, b in pairs if a.cpu_s and b.cpu_s]
    return {
        "framework": arguments.framework,
        "workload": arguments.workload,
        "strategy": arguments.strategy,
        "workers": arguments.workers,
        "batch_per_worker": arguments.batch,
        "blocks": len(pairs),
        "adapter_step_s": statistics.median(cost.wall_s for cost in adapter),
        "plain_step_s": statistics.median(cost.wall_s for cost in plain),
        "throughput_ratio": _mean_ratio([b.wall_s / a.wall_s for a, b in pairs]),
        "throughput_per_cpu_s_ratio": _mean_ratio(of_cpu) if len(of_cpu) == len(pairs) else None,
    }


def _mean_ratio(ratios: list[float]) -> dict[str, float | None]:
    """The geometric mean of ratios with its interval, which one block alone does not have."""
    logs = [math.log(ratio) for ratio in ratios]
    centre = statistics.fmean(logs)
    result: dict[str, float | None] = {"value": math.exp(centre), "low": None, "high": None, "level": _LEVEL}
    if len(logs) > 1:
        half = stats.t.ppf(0.5 + _LEVEL / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        result.update(low=math.exp(centre - half), high=math.exp(centre + half))
    return result


def _workload(text: str) -> Workload:
    name, _, side = text.partition("@")
    return build_workload(name, image=(int(side), int(side)) if side else None)


def _strategy(manifest: Manifest, workers: int) -> str:
    """The first strategy that takes this many workers and agrees on every step."""
    for name, support in manifest.strategies.items():
        enough = support.min_workers <= workers <= (support.max_workers or workers)
        if support.synchronous and enough and (name == "single") == (workers == 1):
            return name
    sys.exit(f"{manifest.name} has no synchronous strategy for {workers} workers; name one with --strategy")


def _interpreter(framework: str) -> Path:
    given = os.environ.get(f"STEPTIME_TEST_PYTHON_{framework.upper()}") or ready_interpreter(framework)
    if given is None:
        sys.exit(f"no environment for {framework}: run 'steptime env create {framework}' or pass --python")
    return Path(given)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework")
    parser.add_argument("workload", help="lenet5, resnet50@64, …")
    parser.add_argument("--batch", type=int, default=64, help="samples per worker")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--strategy", help="default: the first synchronous one that fits")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for one launch")
    parser.add_argument("--python", type=Path, help="interpreter of the framework's environment")
    return parser.parse_args()


if __name__ == "__main__":
    main()
