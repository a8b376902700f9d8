"""Starts Caffe's own program ``caffe train`` on the net of the plain loop, and prints the cost of its steps.

::

    caffe-python caffe_program.py PROGRAM WORKLOAD BATCH STEPS WARMUP

It runs in the environment's Python, whose loader also starts PROGRAM. ``caffe`` says every tenth iteration on its
standard error; the ends of those in between are placed evenly, and the CPU time is that of its process so far.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

LOOK = 10
_SAID = re.compile(r"Iteration (\d+)[, ]")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def write_files(workload: str, batch: int, iterations: int) -> None:
    """Write the net, its solver and one batch, which Caffe keeps in memory and trains on again and again."""
    import caffe_plain  # noqa: PLC0415 - it imports Caffe
    import h5py  # noqa: PLC0415 - Debian's

    name, _, side = workload.partition("@")
    spec = caffe_plain.lenet5(batch) if name == "lenet5" else caffe_plain.resnet50(batch, int(side))
    net = spec.to_proto()
    channels, size = (1, 28) if name == "lenet5" else (3, int(side))
    data = net.layer[0]
    data.Clear()
    data.name, data.type = "data", "HDF5Data"
    data.top.extend(["data", "label"])
    data.hdf5_data_param.source, data.hdf5_data_param.batch_size = "files.txt", batch
    Path("files.txt").write_text("batch.h5\n")
    stream = np.random.RandomState(0)
    with h5py.File("batch.h5", "w") as file:
        file["data"] = stream.standard_normal((batch, channels, size, size)).astype(np.float32)
        file["label"] = stream.randint(0, 10, batch).astype(np.float32)
    Path("net.prototxt").write_text(str(net))
    settings = ['net: "net.prototxt"', 'lr_policy: "fixed"', "base_lr: 0.01", "momentum: 0.9", "solver_mode: CPU"]
    settings += [f"max_iter: {iterations}", f"display: {LOOK}", "snapshot_after_train: false"]
    Path("solver.prototxt").write_text("\n".join(settings))


def command_of(program: str) -> list:
    """Return the command that starts ``program`` by the loader and the libraries of this Python."""
    started = Path(sys.executable).resolve()
    words = Path("/proc/self/cmdline").read_bytes().decode().split("\0")
    if "--library-path" in words:
        return [*words[: words.index("--library-path") + 2], program]
    return [str(started.parent / program)]


def main(program: str, workload: str, batch: int, steps: int, warmup: int) -> None:
    """Train, and print one JSON line."""
    warmup = -(-warmup // LOOK) * LOOK  # the first end that counts is one that is said
    write_files(workload, batch, warmup + steps + LOOK)
    command = [*command_of(program), "train", "--solver=solver.prototxt"]
    # The plain loop keeps Caffe from saying anything.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "GLOG_minloglevel": "0"})
    seen = {}
    for line in process.stderr:
        found = _SAID.search(line)
        if found and int(found.group(1)) not in seen:
            seen[int(found.group(1))] = (time.monotonic(), _cpu_s(process.pid))
    if process.wait():
        sys.exit(f"caffe ended with {process.returncode}")
    counted = {number: at for number, at in seen.items() if warmup <= number <= warmup + steps}
    ends, numbers = [], sorted(counted)
    for before, after in zip(numbers, numbers[1:]):  # noqa: B905, RUF007 - Debian's Python is 3.9
        start, end = counted[before][0], counted[after][0]
        ends += [start + (end - start) * (step - before) / (after - before) for step in range(before, after)]
    ends.append(counted[numbers[-1]][0])
    print(json.dumps({"ends_s": ends, "cpu_s": counted[numbers[-1]][1] - counted[numbers[0]][1]}), flush=True)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
