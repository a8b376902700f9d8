"""A plain pycaffe training loop, as an expert of Caffe would write it; see race_plain.py for its arguments.

Started by mpiexec, it averages gradients over MPI in the solver's callback; otherwise it trains alone.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

os.environ["GLOG_minloglevel"] = "2"  # noqa: SIM112 - as Caffe reads it, when it is imported

import caffe
import numpy as np
from caffe import layers as L  # noqa: N812 - the name that every user of Caffe gives it
from caffe import params as P  # noqa: N812

SOLVER = """
net: "%s"
base_lr: 0.01
lr_policy: "fixed"
momentum: 0.9
snapshot_after_train: false
solver_mode: CPU
"""
FILLER = {"type": "msra"}


def lenet5(batch: int) -> caffe.NetSpec:
    """Two convolutions and three linear layers."""
    n = _start(batch, 1, 28)
    n.conv1 = L.Convolution(n.data, num_output=6, kernel_size=5, pad=2, weight_filler=FILLER)
    n.pool1 = L.Pooling(L.ReLU(n.conv1, in_place=True), pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.conv2 = L.Convolution(n.pool1, num_output=16, kernel_size=5, weight_filler=FILLER)
    n.pool2 = L.Pooling(L.ReLU(n.conv2, in_place=True), pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.fc1 = L.InnerProduct(n.pool2, num_output=120, weight_filler=FILLER)
    n.fc2 = L.InnerProduct(L.ReLU(n.fc1, in_place=True), num_output=84, weight_filler=FILLER)
    n.fc3 = L.InnerProduct(L.ReLU(n.fc2, in_place=True), num_output=10, weight_filler=FILLER)
    n.loss = L.SoftmaxWithLoss(n.fc3, n.label)
    return n


def resnet50(batch: int, side: int) -> caffe.NetSpec:
    """ResNet-50 v1.5 for 1000 classes; in each block the stride sits in the second convolution."""
    n = _start(batch, 3, side)
    x = L.ReLU(_conv(n.data, 64, 7, 2), in_place=True)
    x = L.Pooling(x, pool=P.Pooling.MAX, kernel_size=3, stride=2, pad=1, round_mode=P.Pooling.FLOOR)
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            width, stride = 64 * 2**stage, 2 if stage and not block else 1
            shortcut = x if block else _conv(x, 4 * width, 1, stride)
            y = L.ReLU(_conv(x, width, 1, 1), in_place=True)
            y = L.ReLU(_conv(y, width, 3, stride), in_place=True)
            x = L.ReLU(L.Eltwise(_conv(y, 4 * width, 1, 1), shortcut), in_place=True)
    x = L.Pooling(x, pool=P.Pooling.AVE, global_pooling=True)
    n.loss = L.SoftmaxWithLoss(L.InnerProduct(x, num_output=1000, weight_filler=FILLER), n.label)
    return n


def _start(batch: int, channels: int, side: int) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data, n.label = L.MemoryData(batch_size=batch, channels=channels, height=side, width=side, ntop=2)
    return n


def _conv(x: object, width: int, kernel: int, stride: int) -> object:
    """A convolution without bias and its normalisation."""
    shape = {"num_output": width, "kernel_size": kernel, "stride": stride, "pad": kernel // 2, "bias_term": False}
    x = L.Convolution(x, weight_filler=FILLER, **shape)
    return L.Scale(L.BatchNorm(x, in_place=True), bias_term=True, in_place=True)


def _average_over_mpi(solver: caffe.SGDSolver) -> object:
    """Average all gradients in one vector before each update; return MPI's module."""
    from mpi4py import MPI  # noqa: PLC0415 - initialises MPI

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["MPI_LOCALRANKID"]) % len(cores)]})
    blobs = [blob for layer in solver.net.layers if layer.type != "BatchNorm" for blob in layer.blobs]
    flat = np.empty(sum(blob.count for blob in blobs), np.float32)
    parts = np.split(flat, np.cumsum([blob.count for blob in blobs])[:-1])
    # Debian's Python 3.9 has no strict zip.
    pairs = [(blob.diff, part.reshape(blob.diff.shape)) for blob, part in zip(blobs, parts)]  # noqa: B905

    def average() -> None:
        for diff, part in pairs:
            part[...] = diff
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, flat)
        for diff, part in pairs:
            np.divide(part, MPI.COMM_WORLD.size, out=diff)

    solver.add_callback(lambda: None, average)
    return MPI


def main(workload: str, batch: int, steps: int, warmup: int) -> None:
    """Train and print the ends of the timed steps of every worker."""
    name, _, side = workload.partition("@")
    net = lenet5(batch) if name == "lenet5" else resnet50(batch, int(side))
    with tempfile.TemporaryDirectory() as folder:
        net_file, solver_file = Path(folder) / "net.prototxt", Path(folder) / "solver.prototxt"
        net_file.write_text(str(net.to_proto()))
        solver_file.write_text(SOLVER % net_file)
        solver = caffe.SGDSolver(str(solver_file))
    mpi = _average_over_mpi(solver) if "PMI_RANK" in os.environ else None
    stream = np.random.RandomState(0)
    x = stream.standard_normal(solver.net.blobs["data"].data.shape).astype(np.float32)
    t = stream.randint(0, 10, (batch, 1, 1, 1)).astype(np.float32)
    solver.net.set_input_arrays(x, t)
    ends, cpu = [], 0.0
    for step in range(warmup + steps):
        solver.step(1)
        ends.append(time.monotonic())
        if step == warmup:
            cpu = _cpu_s()
    line = {"ends_s": ends[warmup:], "cpu_s": _cpu_s() - cpu}
    every = [line] if mpi is None else mpi.COMM_WORLD.gather(line)
    for each in every or []:
        print(json.dumps(each), flush=True)


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
