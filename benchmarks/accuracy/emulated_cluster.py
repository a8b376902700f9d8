"""How well step times on emulated hosts are predicted from one worker's numbers and a benchmark of one link.

::

    python benchmarks/accuracy/emulated_cluster.py -o DIR [--frameworks pytorch] [--workloads lenet5,cifar_cnn]
        [--rates 50,100,200] [--hosts 2,3,4] [--launches 2]

For every framework, workload, bandwidth and number of hosts, three things are measured: computing alone (the ladder's
rungs that send nothing, with one worker and with as many as will train), the link between two hosts (`steptime net`
with the framework's back end), and the step time itself, which is only compared with. Nothing is fitted to a step that
sends. The table has the error of the prediction and of simpler ones beside it. Needs a quiet machine, and root.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steptime.measurements.anatomy.rungs import climbs
from steptime.measurements.estimate import estimate
from steptime.measurements.store import Store
from steptime.perfmodels.communication.carriage import Interconnect
from steptime.perfmodels.communication.link import Link
from steptime.simulator.play import Crew, Durations, play
from steptime.stepgraph.graph import StepGraph, step_graph
from steptime.stepgraph.plan import Circumstances
from steptime.stepgraph.work import work_of
from steptime.workloads.table import build_workload

STEPTIME = str(Path(sys.executable).with_name("steptime"))
WORKLOADS = {
    "lenet5": (None, 64),
    "cifar_cnn": (32, 64),
    "autoencoder": (None, 64),
    "resnet50": (64, 8),
}
"""Side of the image and batch of each worker; the loader is synthetic."""
BACK_ENDS = {"pytorch": "gloo", "horovod_pytorch": "horovod-gloo", "chainer": "mpi"}
SHORT, LONG = 1 << 10, 1 << 22
LATENCIES_PER_STEP = 2.0  # of gloo's ring: 4 (p - 1) latencies in all


@dataclass(frozen=True)
class Calibration:
    """Seconds of one worker's step without any exchange."""

    forward: float
    backward: float
    update: float
    slowest: float
    """Of the slowest worker over the mean one."""


@dataclass(frozen=True)
class Cell:
    """One point: what was measured, and what was predicted by each way."""

    framework: str
    workload: str
    megabits: float
    hosts: int
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: dict[str, float]


def run_study(folder: Path, framework: str, workload: str, hosts: list[int], launches: int, *settings: str) -> Store:
    """Run a study of one workload on emulated hosts and return its records; what is there already stays."""
    side, batch = WORKLOADS[workload]
    study = {
        "name": "accuracy",
        "workloads": [{"name": workload, "batch_per_worker": batch}],
        "frameworks": [framework],
        "loaders": ["synthetic"],
        "workers": hosts,
        "device": "cpu",
        "launcher": "emulated",
        "launches": {"min": launches, "max": launches},
        "steps": {"warmup": 4, "min": 15, "max": 60},
        "seconds_per_launch": 4,
        "gate": {"enabled": False},
    }
    if side:
        study["workloads"][0]["image"] = side
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(study))
    command = [STEPTIME, "run", str(folder / "study.json"), *settings, "-o", str(folder / "results")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Store.open(folder / "results")


def calibrations(store: Store) -> dict[int, Calibration]:
    """Return computing without sending, by the number of workers."""
    found = {}
    for trial in store.trials():
        climbed = climbs(store.anatomies(trial.id))
        medians = [
            {name: np.median(np.concatenate(blocks, axis=1), axis=1) for name, blocks in each.rungs.items()}
            for each in climbed
        ]
        forward, backward, local = (
            float(np.mean([each[name].mean() for each in medians])) for name in ("forward", "backward", "local")
        )
        slowest = float(
            np.mean(
                [np.median(each.compute().max(axis=0)) / np.median(each.compute().mean(axis=0)) for each in climbed]
            )
        )
        found[trial.workers] = Calibration(forward, backward - forward, max(0.0, local - backward), slowest)
    return found


def link_of(folder: Path, back_end: str, megabits: float) -> Link:
    """Benchmark the link of two hosts with a back end: latency from the shortest message, rate from the longest."""
    command = [
        *(STEPTIME, "net", back_end, "--workers", "2", "--launcher", "emulated", "--bandwidth", f"{megabits:g}Mbit/s"),
        *("--operations", "allreduce", "--sizes", f"{SHORT}B,{LONG}B", "--launches", "2", "--json", "-o", str(folder)),
    ]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["net"]
    (row,) = [each for each in rows if each["workers"] == 2]
    seconds = {each["bytes"]: each["time_s"]["value"] for each in row["sizes"]}
    # A ring of two sends half of a message twice.
    return Link(LONG / (seconds[LONG] - seconds[SHORT]), seconds[SHORT] / 4.0, LATENCIES_PER_STEP)


def step(graph: StepGraph, workers: int, calibration: Calibration, link: Link) -> float:
    """Return the seconds of a step as steptime plays it."""
    durations = Durations(calibration.forward, calibration.backward, calibration.update)
    return float(play(graph, durations, Crew(workers=workers, slowest=calibration.slowest), Interconnect(link)).step[0])


def predictions(store: Store, base: dict[int, Calibration], link: Link, megabits: float) -> Iterator[Cell]:
    """Yield what is predicted for each configuration that was measured."""
    for trial in store.trials():
        found = estimate([each for each in store.iter_launches(trial.id) if each.status == "ok"], trial.strategy)
        if found is None:
            continue
        work = work_of(build_workload(trial.workload, trial.input_shape, trial.classes))
        graph = step_graph(
            work, trial.framework, trial.strategy, Circumstances(workers=trial.workers, options=trial.options)
        )
        nominal = Link(megabits * 1e6 / 8 * 0.956)

        own, one = base[trial.workers], base[1]
        shared = -(-trial.workers // 2)
        alone = Calibration(one.forward * shared, one.backward * shared, one.update * shared, 1.0)
        computing = (own.forward + own.backward) * own.slowest + own.update
        exchange = step(graph, trial.workers, Calibration(1e-9, 1e-9, 0.0, 1.0), link)
        yield Cell(
            trial.framework,
            trial.workload,
            megabits,
            trial.workers,
            found.median,
            found.low,
            found.high,
            {
                "steptime": step(graph, trial.workers, own, link),
                "from one worker": step(graph, trial.workers, alone, link),
                "one, unscaled": step(graph, trial.workers, one, link),
                "nominal link": step(graph, trial.workers, own, nominal),
                "no overlap": computing + exchange,
                "only exchange": exchange,
            },
        )


def main() -> int:
    """Measure, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output-dir", type=Path, required=True)
    parser.add_argument("--frameworks", default="pytorch")
    parser.add_argument("--workloads", default="lenet5,cifar_cnn,autoencoder")
    parser.add_argument("--rates", default="50,100,200", help="Mbit/s")
    parser.add_argument("--hosts", default="2,3,4")
    parser.add_argument("--launches", type=int, default=2)
    asked = parser.parse_args()
    hosts = [int(each) for each in asked.hosts.split(",")]
    cells = []
    for framework in asked.frameworks.split(","):
        for workload in asked.workloads.split(","):
            place = asked.output_dir / framework / workload
            apart = ["anatomy.launches=1", "cluster={hosts: 4, bandwidth: 1Gbit/s}", "launches={min: 1, max: 1}"]
            base = calibrations(run_study(place / "alone", framework, workload, [1, *hosts], 1, *apart))
            for rate in map(float, asked.rates.split(",")):
                link = link_of(asked.output_dir / "net" / f"{framework}-{rate:g}", BACK_ENDS[framework], rate)
                cluster = f"cluster={{hosts: 4, bandwidth: {rate:g}Mbit/s}}"
                store = run_study(place / f"{rate:g}", framework, workload, hosts, asked.launches, cluster)
                for cell in predictions(store, base, link, rate):
                    cells.append(cell)
                    show(cell)
    summarise(cells)
    return 0


def show(cell: Cell) -> None:
    """Print one row."""
    errors = "  ".join(f"{name} {100 * (each / cell.measured_s - 1):+.1f}" for name, each in cell.predicted_s.items())
    measured = f"{1e3 * cell.measured_s:8.1f} ms ({1e3 * cell.low_s:.1f} to {1e3 * cell.high_s:.1f})"
    print(
        f"{cell.framework} {cell.workload:12} {cell.megabits:4g} Mbit/s {cell.hosts} hosts {measured}  {errors}",
        flush=True,
    )


def summarise(cells: list[Cell]) -> None:
    """Print the errors of each way over all cells."""
    for framework in sorted({cell.framework for cell in cells}):
        own = [cell for cell in cells if cell.framework == framework]
        print(f"\n{framework}: absolute error in percent over {len(own)} cells")
        for name in own[0].predicted_s:
            errors = np.array([100 * abs(cell.predicted_s[name] / cell.measured_s - 1) for cell in own])
            print(f"  {name:16} median {np.median(errors):5.1f}  mean {errors.mean():5.1f}  worst {errors.max():5.1f}")


if __name__ == "__main__":
    sys.exit(main())
