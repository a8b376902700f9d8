"""A plain CNTK training loop, as an expert of CNTK would write it; see race_plain.py for its arguments.

Started by mpiexec, it trains with CNTK's data-parallel learner; otherwise alone.
"""

import json
import os
import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")
ALONE = "OMPI_COMM_WORLD_RANK" not in os.environ
if ALONE:
    os.environ.setdefault("OPAL_PREFIX", sys.prefix)

import cntk as C  # noqa: E402, N812 - the name that every user of CNTK gives it
from cntk import layers as L  # noqa: E402, N812


def lenet5(x: C.Variable) -> C.Function:
    """Return two convolutions and three linear layers on ``x``."""
    relu = C.relu
    network = L.Sequential(
        [
            L.Convolution2D((5, 5), 6, activation=relu, pad=True),
            L.MaxPooling((2, 2), strides=2),
            L.Convolution2D((5, 5), 16, activation=relu),
            L.MaxPooling((2, 2), strides=2),
            L.Dense(120, activation=relu),
            L.Dense(84, activation=relu),
            L.Dense(10),
        ]
    )
    return network(x)


def _norm(x: C.Function, window: int, width: int, stride: int = 1) -> C.Function:
    beyond = window > x.shape[1]  # CNTK pads no image that is smaller than the window
    if beyond:
        around = (window // 2, window // 2)
        x = C.pad(x, [(0, 0), around, around], C.CONSTANT_PAD, 0)
    y = L.Convolution2D((window, window), width, strides=stride, pad=window > 1 and not beyond, bias=False)(x)
    return L.BatchNormalization(map_rank=1, normalization_time_constant=5000, use_cntk_engine=True)(y)


def _bottleneck(x: C.Function, width: int, stride: int) -> C.Function:
    y = C.relu(_norm(x, 1, width))
    y = C.relu(_norm(y, 3, width, stride))
    y = _norm(y, 1, 4 * width)
    same = x.shape[0] == 4 * width and stride == 1
    return C.relu(y + (x if same else _norm(x, 1, 4 * width, stride)))


def resnet50(x: C.Variable) -> C.Function:
    """Return ResNet-50 v1.5 for 1000 classes on ``x``."""
    h = C.relu(_norm(x, 7, 64, 2))
    h = L.MaxPooling((3, 3), strides=2, pad=True)(h)
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            h = _bottleneck(h, 64 * 2**stage, 2 if stage and not block else 1)
    return L.Dense(1000)(L.GlobalAveragePooling()(h))


def main(workload: str, batch: int, steps: int, warmup: int) -> None:
    """Train and print the ends of the timed steps and their CPU time."""
    C.device.try_set_default_device(C.device.cpu())
    C.cntk_py.set_max_num_cputhreads(1)
    if not ALONE:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]) % len(cores)]})
    name, _, side = workload.partition("@")
    network, shape, classes = (
        (lenet5, (1, 28, 28), 10) if name == "lenet5" else (resnet50, (3, int(side), int(side)), 1000)
    )
    features, labels = C.input_variable(shape), C.input_variable(classes)
    loss = C.cross_entropy_with_softmax(network(features), labels)
    rate = C.learning_parameter_schedule(0.01, minibatch_size=C.learners.IGNORE)
    momentum = C.momentum_schedule(0.9, minibatch_size=C.learners.IGNORE)
    learner = C.momentum_sgd(loss.parameters, rate, momentum, unit_gain=False)
    if not ALONE:
        learner = C.distributed.data_parallel_distributed_learner(learner)
    trainer = C.Trainer(None, loss, [learner])
    stream = np.random.RandomState(0)
    x = stream.standard_normal((batch, *shape)).astype(np.float32)
    t = np.eye(classes, dtype=np.float32)[stream.randint(0, classes, batch)]
    arguments = {features: x, labels: t}
    ends, cpu = [], 0.0
    for step in range(warmup + steps):
        trainer.train_minibatch(arguments)
        ends.append(time.monotonic())
        if step == warmup:
            cpu = time.process_time()
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu}), flush=True)
    if not ALONE:
        C.distributed.Communicator.finalize()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
