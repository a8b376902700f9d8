"""What being attached costs a step: the processor time of the training thread, attached and not, interleaved.

`python benchmarks/attach/cost.py [--blocks 6]` starts a training script in randomised pairs, with and without the hook,
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
import json, os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())])
if os.environ.get("WORLD_SIZE", "1") != "1":
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
samples = [(torch.randn(64), torch.randn(64)) for _ in range(4096)]

def train(pause, steps):
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

train(0, 50)
found = {name: train(*settings) for name, settings in json.loads(sys.argv[1]).items()}
with open(os.path.join(sys.argv[2], os.environ.get("RANK", "0") + ".times"), "w") as file:
    json.dump(found, file)
if dist.is_initialized():
    dist.destroy_process_group()
"""


def run(python: Path, processes: int, *, attached: bool) -> dict[str, Any]:
    """Run the script once; return its medians in seconds by length of step, and the size of the record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(SCRIPT, encoding="utf-8")
        record = folder / "record"
        own = environment(write_hook(folder / "hook"), record, lines=None, flops=False) if attached else {}
        port = str(random.randint(20000, 29000))  # noqa: S311 - a port
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", port]
        command = [str(python), *(launch if processes > 1 else []), str(script), json.dumps(STEPS), name]
        environ = {**os.environ, **own, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environ, check=True, capture_output=True, timeout=300)
        found = json.loads((folder / "0.times").read_text())
        steps = [line for path in record.glob("*.jsonl") for line in path.read_text().splitlines()]
        sizes = [len(line) + 1 for line in steps if line.startswith('{"kind":"step"')]
    medians = {
        length: {"processor_s": statistics.median(times[0]), "wall_s": statistics.median(times[1])}
        for length, times in found.items()
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
    order = random.Random(0)  # noqa: S311 - an order
    runs: dict[int, list[dict[bool, Any]]] = {1: [], 2: []}
    for _ in range(blocks):
        for processes in order.sample([1, 2], 2):
            pair = {attached: run(python, processes, attached=attached) for attached in order.sample([True, False], 2)}
            runs[processes].append(pair)
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
