"""How quick the simulator is: a step graph, ten thousand configurations at once, one prediction.

Run it on a quiet machine: ``python benchmarks/simulator/speed.py``. Each line is the shortest and the median wall time
of repeated runs, and the least CPU time, which other load changes less; making the graph, which is done once per
workload and framework, is a line of its own.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from steptime.catalog.workloads.table import build_workload
from steptime.model.collectives import Link
from steptime.model.compute import work_of
from steptime.model.interconnect import Interconnect
from steptime.model.policies import step_graph
from steptime.model.worker_spread import WorkerSpread
from steptime.simulate.configuration import Durations, WorkerGroup, shares_of
from steptime.simulate.simulate import simulate
from steptime.worker.communication import PolicyContext

_RUNS = 5
_STEP = Durations(forward=0.11, backward=0.23, update=0.01)
_LINK = Interconnect(Link(3e9, 20e-6))


def timed(name: str, function: Callable[[], object], per: int = 1, unit: str = "s") -> None:
    """Print how long a function takes, by itself or per item: the shortest and the median wall time, the least CPU."""
    wall, cpu = [], []
    for _ in range(_RUNS):
        begin, spent = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - spent)
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit] / per
    print(f"{name:66} {min(wall) * scale:9.3f} {statistics.median(wall) * scale:9.3f} {min(cpu) * scale:9.3f} {unit}")


def main() -> None:
    """Print one line per benchmark."""
    work = work_of(build_workload("resnet152"))
    print(f"{'':66} {'shortest':>9} {'median':>9} {'CPU':>9}")
    context = PolicyContext(workers=1024)
    timed(
        "graph of ResNet-152",
        lambda: step_graph(work_of(build_workload("resnet152")), "pytorch", "allreduce", context),
        unit="ms",
    )
    graphs = {name: step_graph(work, name, "allreduce", context) for name in ("pytorch", "horovod_pytorch", "caffe")}
    shares = shares_of(graphs["pytorch"])
    spread = WorkerSpread(0.02, 0.03)
    for name, graph in graphs.items():
        many = 10_000
        rates = np.geomspace(1e8, 2.5e10, many)
        timed(
            f"one deterministic prediction of {many:,}, {name}",
            lambda graph=graph, rates=rates: simulate(
                graph, _STEP, WorkerGroup(64, spread=spread), Interconnect(Link(rates, 2e-5)), shares=shares
            ),
            per=many,
            unit="us",
        )
    timed(
        "one deterministic prediction by itself, pytorch",
        lambda: simulate(graphs["pytorch"], _STEP, WorkerGroup(64, spread=spread), _LINK, shares=shares),
        unit="us",
    )


if __name__ == "__main__":
    main()
