"""How quick the simulator is: stochastic steps of many workers, a grid of configurations, one prediction.

Run it on a quiet machine: ``python benchmarks/simulator/speed.py``. Each line is the shortest and the median wall time
of repeated runs, and the least CPU time, which other load changes less; making the graph, which is done once per
workload and framework, is a line of its own.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect
from steptime.model.layer_work import work_of
from steptime.model.step_graph import step_graph
from steptime.simulate.configuration import Crew, Durations, shares_of
from steptime.simulate.grid import Array, Noise, Value, play_grid, play_steps
from steptime.simulate.phases import Phases
from steptime.simulate.simulate import play
from steptime.simulate.stragglers import Spread
from steptime.worker.communication import PolicyContext
from steptime.workloads.table import build_workload

_RUNS = 5
_STEP = Durations(forward=0.11, backward=0.23, update=0.01, input=0.05)
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
    spread, noise = Spread(0.02, 0.03), Noise(link=0.1, input=0.2)
    for workers in (64, 1024, 32_768, 1_000_000):
        timed(
            f"10,000 stochastic steps, ResNet-152, DDP, {workers:,} workers",
            lambda workers=workers: play_steps(
                graphs["pytorch"],
                _STEP,
                Crew(workers, spread=spread, slowdown=0.1),
                _LINK,
                steps=10_000,
                generator=np.random.default_rng(0),
                noise=noise,
                shares=shares,
            ),
        )
    timed(
        "10,000 stochastic steps, ResNet-152, Horovod, 1,024 workers",
        lambda: play_steps(
            graphs["horovod_pytorch"],
            _STEP,
            Crew(1024, spread=spread),
            _LINK,
            steps=10_000,
            generator=np.random.default_rng(0),
            noise=noise,
            shares=shares,
        ),
    )
    numbers = {
        "workers": [float(2**power) for power in range(10)],
        "bandwidth": list(np.geomspace(1e8, 2.5e10, 50)),
        "batch": [8.0, 16.0, 32.0, 64.0, 128.0],
        "latency": [5e-6, 2e-5, 1e-4, 1e-3],
    }
    graph_axes = {"framework": ["pytorch", "caffe"], "bucket_mb": [1.0, 5.0, 25.0, 50.0, 100.0]}

    def played(changed: Mapping[str, Value], arrays: Mapping[str, Array]) -> Phases:
        options = {"bucket_mb": changed["bucket_mb"]}
        graph = step_graph(work, changed["framework"], "allreduce", PolicyContext(options=options))
        return play(
            graph,
            Durations(forward=0.004 * arrays["batch"], backward=0.008 * arrays["batch"], update=0.01),
            Crew(arrays["workers"], spread=spread),
            Interconnect(Link(arrays["bandwidth"], arrays["latency"])),
            shares=shares,
        )

    timed("grid of 100,000 configurations, ResNet-152", lambda: play_grid(graph_axes, numbers, played))
    for name, graph in graphs.items():
        many = 10_000
        rates = np.geomspace(1e8, 2.5e10, many)
        timed(
            f"one deterministic prediction of {many:,}, {name}",
            lambda graph=graph, rates=rates: play(
                graph, _STEP, Crew(64, spread=spread), Interconnect(Link(rates, 2e-5)), shares=shares
            ),
            per=many,
            unit="us",
        )
    timed(
        "one deterministic prediction by itself, pytorch",
        lambda: play(graphs["pytorch"], _STEP, Crew(64, spread=spread), _LINK, shares=shares),
        unit="us",
    )


if __name__ == "__main__":
    main()
