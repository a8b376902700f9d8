"""What the races of adapters share: launching an adapter, the cost of a step, and ratios with their intervals.

Each block of a race launches the adapter and its rival once, in fresh processes on the same cores, in alternating
order (AB, BA, AB, …), so that drift of the machine hits both alike. A block gives one ratio of throughputs; the blocks
are independent, so that the interval is Student's on the logarithms of the ratios.

A rival gives one JSON object per worker: ``ends_s``, the ends of its timed steps on the monotonic clock, and, where it
can, ``cpu_s``, the CPU seconds of the process between the first and the last of these ends. Where all give it, the
ratio of CPU seconds is shown too, which other programs on the machine disturb far less than the time on the wall.
"""

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from steptime.catalog.choices import strategy_named
from steptime.catalog.manifest import Manifest
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.options import OptionValue
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import build_workload
from steptime.execution.jobs import TimingSchedule, timing_job
from steptime.execution.run_folder import make_run_folder
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named
from steptime.runner.preparation import ready_interpreter
from steptime.study.trial import Trial

_LEVEL = 0.95


@dataclass(frozen=True)
class Cost:
    """What one step cost in one launch."""

    wall_s: float
    """Median step time, where a step ends when its slowest worker does."""
    cpu_s: float | None
    """CPU time per step of all workers together, where known."""


@dataclass(frozen=True)
class Race:
    """What both rivals train, and how."""

    manifest: Manifest
    python: Path
    strategy: str
    workload: str
    batch: int
    workers: int
    servers: int
    steps: int
    warmup: int
    time_limit_s: float
    tuning: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Values of the adapter's options that are not those of the tier."""
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the optimizer that are not those of every trial."""

    def request(self, folder: Path) -> Request:
        """Return what is asked of a launcher."""
        return Request(
            folder=folder,
            interpreter=self.python,
            workers=self.workers,
            servers=self.servers,
            scheduler=self.manifest.strategies[self.strategy].scheduler,
            cores=tuple(sorted(os.sched_getaffinity(0))),
            time_limit_s=self.time_limit_s,
        )

    def settings(self) -> dict[str, OptionValue]:
        """Return the value of every option of the adapter."""
        return {**self.manifest.tier_options(self.tuning, self.strategy, "cpu"), **self.options}  # type: ignore[arg-type]


def interleave(race: Race, rival: Callable[[Race], Cost], name: str, blocks: int) -> dict[str, Any]:
    """Run the blocks, print each on standard error, and return the summary."""
    adapter: list[Cost] = []
    other: list[Cost] = []
    for block in range(blocks):
        rivals = [(adapter_cost, adapter), (rival, other)]
        for run, costs in rivals if block % 2 == 0 else reversed(rivals):
            costs.append(run(race))
        text = _compared(adapter[-1], other[-1], name)
        print(f"block {block + 1}/{blocks}: {text}", file=sys.stderr, flush=True)
    return _summary(race, adapter, other, name)


def adapter_cost(race: Race) -> Cost:
    """Launch the adapter once and return what a step cost."""
    workload = named_workload(race.workload)
    trial = Trial(
        framework=race.manifest.name,
        strategy=race.strategy,
        workload=workload.name,
        input_shape=workload.input_shape,
        classes=workload.classes,
        dataset=None,
        loader="synthetic",
        device="cpu",
        precision="fp32",
        workers=race.workers,
        servers=race.servers,
        batch_per_worker=race.batch,
        options=race.settings(),
        optimizer=Optimizer(**race.optimizer),
    )
    schedule = TimingSchedule(race.warmup, 0.0, race.steps, race.steps)
    job = timing_job(trial, workload, {"kind": "synthetic", "distinct_batches": 1}, schedule)
    launcher = race.manifest.launcher_for(race.strategy, race.settings())
    with tempfile.TemporaryDirectory() as folder:
        make_run_folder(Path(folder), race.manifest.folder, job, race.manifest.libraries, race.manifest.name)
        outcome = launcher_named(launcher).run(race.request(Path(folder)))
        if not outcome.ok:
            said = "\n".join(path.read_text() for path in sorted(Path(folder).glob("*.err")))
            sys.exit(f"the adapter failed: {outcome.reason}\n{said}")
        workers = [_steps_record(Path(folder) / f"worker-{rank}.jsonl") for rank in range(race.workers)]
    # The adapter's CPU time starts one step before the first of its ends.
    steps = race.steps
    return cost_of_workers(
        [{"ends_s": each["ends_s"], "cpu_s": each["usage"]["cpu_s"] * (steps - 1) / steps} for each in workers]
    )


def cost_of_workers(workers: Sequence[Mapping[str, Any]]) -> Cost:
    """Return what a step cost, of what every worker noted: ``ends_s`` and perhaps ``cpu_s``."""
    ends = [max(step) for step in zip(*(worker["ends_s"] for worker in workers), strict=True)]
    wall = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends))
    cpu = [worker["cpu_s"] for worker in workers if "cpu_s" in worker]
    return Cost(wall, sum(cpu) / (len(ends) - 1) if len(cpu) == len(workers) else None)


def start_on(
    cores: tuple[int, ...], argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[str]:
    """Start a process on ``cores``; affinity is inherited, so that the process never runs elsewhere.

    It gets a session of its own, as the adapter's processes do: the kernel may share the cores out by sessions.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        return subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=folder
        )
    finally:
        os.sched_setaffinity(0, before)


def outputs_of(processes: Sequence[subprocess.Popen[str]], limit_s: float, name: str) -> list[str]:
    """Return what each process printed; the program ends when one fails or takes longer than ``limit_s`` seconds."""
    try:
        outputs = [process.communicate(timeout=limit_s)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # what a launcher of a script has started goes with it
    if any(process.returncode for process in processes):
        sys.exit(f"{name} failed with {[process.returncode for process in processes]}\n{''.join(outputs)[-4000:]}")
    return outputs


def _mnist_mlp() -> Workload:
    net = Network((28 * 28,))
    x = net.relu("relu1", net.linear("fc1", net.input, 1024))
    net.linear("fc3", net.relu("relu2", net.linear("fc2", x, 1024)), 10)
    return net.finish("mnist-mlp", classes=10)


def _cifar_net() -> Workload:
    net = Network((3, 32, 32))
    x = net.max_pool("pool1", net.relu("relu1", net.conv2d("conv1", net.input, 6, 5)), 2, stride=2)
    x = net.max_pool("pool2", net.relu("relu2", net.conv2d("conv2", x, 16, 5)), 2, stride=2)
    x = net.relu("relu3", net.linear("fc1", net.flatten("flatten", x), 120))
    net.linear("fc3", net.relu("relu4", net.linear("fc2", x, 84)), 10)
    return net.finish("cifar-net", classes=10)


_OF_SCRIPTS = {"mnist-mlp": _mnist_mlp, "cifar-net": _cifar_net}
"""What official scripts train that steptime has not."""


def named_workload(text: str) -> Workload:
    """Return the workload that ``lenet5`` or ``resnet50@64`` names, with the image's side after the ``@``."""
    if text in _OF_SCRIPTS:
        return _OF_SCRIPTS[text]()
    name, _, side = text.partition("@")
    return build_workload(name, image=(int(side), int(side)) if side else None)


def interpreter(framework: str) -> Path:
    """Return the Python of a framework's environment."""
    given = os.environ.get(f"STEPTIME_TEST_PYTHON_{framework.upper()}") or ready_interpreter(framework)
    if given is None:
        sys.exit(f"no environment for {framework}: run 'steptime env create {framework}' or pass --python")
    return Path(given)


def synchronous_strategy(manifest: Manifest, workers: int) -> str:
    """Return the first strategy that takes this many workers and in which they agree on every step."""
    for name, support in manifest.strategies.items():
        enough = support.min_workers <= workers <= (support.max_workers or workers)
        if strategy_named(name).synchronous and enough and (name == "single") == (workers == 1):
            return name
    sys.exit(f"{manifest.name} has no synchronous strategy for {workers} workers; name one with --strategy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every race has."""
    parser.add_argument("--batch", type=int, default=64, help="samples per worker")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for one launch")
    parser.add_argument("--python", type=Path, help="interpreter of the framework's environment")
    parser.add_argument("--tuning", choices=["documented", "tuned"], default="documented", help="of the adapter")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the adapter, as JSON or text"
    )


def given_options(texts: Sequence[str]) -> dict[str, OptionValue]:
    """Return what ``--option NAME=VALUE`` gave."""
    options: dict[str, OptionValue] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def mean_ratio(ratios: Sequence[float]) -> dict[str, float | None]:
    """Return the geometric mean of ratios with its interval, which one block alone does not have."""
    logs = [math.log(ratio) for ratio in ratios]
    centre = statistics.fmean(logs)
    result: dict[str, float | None] = {"value": math.exp(centre), "low": None, "high": None, "level": _LEVEL}
    if len(logs) > 1:
        half = stats.t.ppf(0.5 + _LEVEL / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        result.update(low=math.exp(centre - half), high=math.exp(centre + half))
    return result


def _steps_record(path: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    found: dict[str, Any] = next(record for record in records if record["kind"] == "steps")
    return found


def _compared(adapter: Cost, other: Cost, name: str) -> str:
    text = f"adapter {adapter.wall_s * 1e3:.3f} ms, {name} {other.wall_s * 1e3:.3f} ms"
    text += f", adapter/{name} throughput {other.wall_s / adapter.wall_s:.4f}"
    if adapter.cpu_s and other.cpu_s:
        text += f", per CPU second {other.cpu_s / adapter.cpu_s:.4f}"
    return text


def _summary(race: Race, adapter: Sequence[Cost], other: Sequence[Cost], name: str) -> dict[str, Any]:
    pairs = list(zip(adapter, other, strict=True))
    of_cpu = [b.cpu_s / a.cpu_s for a, b in pairs if a.cpu_s and b.cpu_s]
    return {
        "framework": race.manifest.name,
        "workload": race.workload,
        "strategy": race.strategy,
        "workers": race.workers,
        "batch_per_worker": race.batch,
        "tuning": race.tuning,
        "options": race.settings(),
        "blocks": len(pairs),
        "adapter_step_s": statistics.median(cost.wall_s for cost in adapter),
        f"{name}_step_s": statistics.median(cost.wall_s for cost in other),
        "throughput_ratio": mean_ratio([b.wall_s / a.wall_s for a, b in pairs]),
        "throughput_per_cpu_s_ratio": mean_ratio(of_cpu) if len(of_cpu) == len(pairs) else None,
    }
