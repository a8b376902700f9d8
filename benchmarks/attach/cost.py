"""What being attached costs a step: the processor time of the training thread, attached and not, interleaved.

`python benchmarks/attach/cost.py [--blocks 6]` runs a training loop in randomised pairs, with and without the hook,
with one and with two processes. Each run trains steps of about 1, 50 and 500 ms: the same small network, and a pause
that takes no processor time, so that the difference of two runs is not hidden by their own work. A run's figure is the
median over its steps; the cost is the mean over pairs of runs, with a 95 % interval of Student's t. Writes cost.json.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scipy import stats

from steptime.attach.folder import environment, write_hook
from steptime.runner.preparation import ready_interpreter

RESULT = Path(__file__).with_name("cost.json")
STEPS = {"1 ms": (0.0, 400), "50 ms": (0.049, 40), "500 ms": (0.499, 16)}
TEN_HOURS_S = 36_000

SCRIPT = """
import importlib, json, os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.set_num_threads(1)
lengths, runs = json.loads(sys.argv[1]), json.loads(sys.argv[2])

def train(net, optimizer, samples, pause, steps):
    processor, wall = [], []
    for _, (x, y) in zip(range(steps), DataLoader(samples, 4)):
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if pause:
            time.sleep(pause)
        processor.append(time.thread_time())
        wall.append(time.perf_counter())
    differences = lambda times: sorted(b - a for a, b in zip(times[5:], times[6:]))
    return [differences(processor), differences(wall)]

def run(rank, world, folder, variables):
    if variables:
        os.environ.update(variables)
        sys.path.insert(0, variables["PYTHONPATH"].split(os.pathsep)[0])
        importlib.import_module("steptime_attach.imports").install("sitecustomize")
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())])
    if world > 1:
        dist.init_process_group("gloo", init_method="file://" + folder + "/meeting", rank=rank, world_size=world)
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    samples = [(torch.randn(64), torch.randn(64)) for _ in range(4096)]
    train(net, optimizer, samples, 0, 50)
    found = {name: train(net, optimizer, samples, *settings) for name, settings in lengths.items()}
    with open(os.path.join(folder, "%d.times" % rank), "w") as file:
        json.dump(found, file)
    if world > 1:
        dist.destroy_process_group()

for world, folder, variables in runs:
    children = []
    for rank in range(world):
        child = os.fork()
        if not child:
            run(rank, world, folder, variables)
            sys.exit(0)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit("a training process failed")
"""


def run(python: Path, folder: Path, order: list[tuple[int, bool]]) -> list[dict[str, Any]]:
    """Run the script once for each of ``order`` (processes, attached); return medians in seconds and sizes of lines.

    All runs are forked from one process that has imported torch, so that they differ in the hook alone.
    """
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    hook = write_hook(folder / "hook")
    runs: list[tuple[int, str, dict[str, str]]] = []
    for number, (processes, attached) in enumerate(order):
        (folder / str(number)).mkdir()
        record = folder / str(number) / "record"
        own = environment(hook, record, lines=None, flops=False) if attached else {}
        runs.append((processes, str(folder / str(number)), own))
    command = [str(python), str(script), json.dumps(STEPS), json.dumps(runs)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return [found_in(Path(name)) for _, name, _ in runs]


def found_in(folder: Path) -> dict[str, Any]:
    """Return what the run in ``folder`` left."""
    lines = [line for path in (folder / "record").glob("*.jsonl") for line in path.read_text().splitlines()]
    sizes = [len(line) + 1 for line in lines if line.startswith('{"kind":"step"')]
    medians = {
        length: {"processor_s": statistics.median(times[0]), "wall_s": statistics.median(times[1])}
        for length, times in json.loads((folder / "0.times").read_text()).items()
    }
    return {"medians": medians, "bytes_of_a_step": statistics.mean(sizes) if sizes else None}


def interval(differences: list[float]) -> dict[str, float | int]:
    """Return the mean of ``differences`` with the bounds of its 95 % interval."""
    mean = statistics.mean(differences)
    half = math.nan
    if len(differences) > 1:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        half = float(stats.t.ppf(0.975, len(differences) - 1)) * error
    return {
        "mean_us": mean * 1e6,
        "low_us": (mean - half) * 1e6,
        "high_us": (mean + half) * 1e6,
        "pairs": len(differences),
    }


def main() -> None:
    """Measure as many pairs as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=6)
    blocks = parser.parse_args().blocks
    python = ready_interpreter("pytorch")
    if python is None:
        sys.exit("no environment for pytorch: run 'steptime env create pytorch'")
    chosen = random.Random(0)  # noqa: S311 - an order
    order = [
        (processes, attached)
        for _ in range(blocks)
        for processes in chosen.sample([1, 2], 2)
        for attached in chosen.sample([True, False], 2)
    ]
    with tempfile.TemporaryDirectory() as name:
        found = run(python, Path(name), order)
    runs: dict[int, list[dict[bool, Any]]] = {1: [], 2: []}
    for at in range(0, len(order), 2):
        runs[order[at][0]].append({order[at + number][1]: found[at + number] for number in (0, 1)})
    result = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "results": summary(runs)}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for processes, lengths in summary(runs).items():
        for length, item in lengths.items():
            cost = item["cost"]
            bounds = f"{cost['mean_us']:.0f} us ({cost['low_us']:.0f} to {cost['high_us']:.0f})"
            print(f"{processes} process(es), steps of {length}: {bounds}, {item['bytes_of_a_step']:.0f} bytes a step")


def summary(runs: dict[int, list[dict[bool, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the cost by number of processes and length of step."""
    found: dict[str, dict[str, Any]] = {}
    for processes, pairs in runs.items():
        for length in STEPS if pairs else ():
            differences, walls = (
                [pair[True]["medians"][length][clock] - pair[False]["medians"][length][clock] for pair in pairs]
                for clock in ("processor_s", "wall_s")
            )
            step = statistics.median(pair[False]["medians"][length]["wall_s"] for pair in pairs)
            size = statistics.mean(pair[True]["bytes_of_a_step"] for pair in pairs)
            found.setdefault(str(processes), {})[length] = {
                "cost": interval(differences),
                "cost_in_wall_time": interval(walls),
                "step_s": step,
                "bytes_of_a_step": size,
                "mb_of_ten_hours_without_limit": size * TEN_HOURS_S / step / 1e6,
            }
    return found


if __name__ == "__main__":
    main()
