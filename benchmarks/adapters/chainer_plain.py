"""A plain Chainer training loop, as an expert of Chainer would write it; see race_plain.py for its arguments.

The tier ``tuned`` computes with iDeep where it is installed. Started by mpiexec, it trains with ChainerMN's own
optimizer wrapper; otherwise alone.
"""

import json
import os
import sys
import time

import chainer
import chainer.functions as F  # noqa: N812 - the name that every user of Chainer gives it
import chainer.links as L  # noqa: N812
import numpy as np


class LeNet5(chainer.Chain):
    """Two convolutions and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(1, 6, 5, pad=2)
            self.conv2 = L.Convolution2D(6, 16, 5)
            self.fc1 = L.Linear(400, 120)
            self.fc2 = L.Linear(120, 84)
            self.fc3 = L.Linear(84, 10)

    def forward(self, x: np.ndarray, t: np.ndarray) -> chainer.Variable:
        """Return the loss of a batch."""
        h = F.max_pooling_2d(F.relu(self.conv1(x)), 2, stride=2, cover_all=False)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 2, stride=2, cover_all=False)
        h = F.relu(self.fc2(F.relu(self.fc1(h))))
        return F.softmax_cross_entropy(self.fc3(h), t)


class Bottleneck(chainer.Chain):
    """Three convolutions beside a shortcut; the stride sits in the second."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(inputs, width, 1, nobias=True)
            self.norm1 = L.BatchNormalization(width, eps=1e-5)
            self.conv2 = L.Convolution2D(width, width, 3, stride=stride, pad=1, nobias=True)
            self.norm2 = L.BatchNormalization(width, eps=1e-5)
            self.conv3 = L.Convolution2D(width, 4 * width, 1, nobias=True)
            self.norm3 = L.BatchNormalization(4 * width, eps=1e-5)
            self.project = inputs != 4 * width or stride != 1
            if self.project:
                self.conv4 = L.Convolution2D(inputs, 4 * width, 1, stride=stride, nobias=True)
                self.norm4 = L.BatchNormalization(4 * width, eps=1e-5)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Return the block's output."""
        h = F.relu(self.norm1(self.conv1(x)))
        h = F.relu(self.norm2(self.conv2(h)))
        h = self.norm3(self.conv3(h))
        return F.relu(h + (self.norm4(self.conv4(x)) if self.project else x))


class ResNet50(chainer.Chain):
    """ResNet-50 v1.5 for 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 64, 7, stride=2, pad=3, nobias=True)
            self.norm1 = L.BatchNormalization(64, eps=1e-5)
            self.blocks = chainer.Sequential()
            inputs = 64
            for stage, depth in enumerate((3, 4, 6, 3)):
                for block in range(depth):
                    width = 64 * 2**stage
                    self.blocks.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
                    inputs = 4 * width
            self.fc = L.Linear(2048, 1000)

    def forward(self, x: np.ndarray, t: np.ndarray) -> chainer.Variable:
        """Return the loss of a batch."""
        h = F.max_pooling_2d(F.relu(self.norm1(self.conv1(x))), 3, stride=2, pad=1, cover_all=False)
        h = F.mean(self.blocks(h), axis=(2, 3))
        return F.softmax_cross_entropy(self.fc(h), t)


def main(workload: str, batch: int, steps: int, warmup: int) -> None:
    """Train and print the ends of the timed steps of every worker."""
    chainer.global_config.type_check = False
    chainer.global_config.autotune = True
    chainer.global_config.use_ideep = "auto" if os.environ.get("RACE_TUNING") == "tuned" else "never"
    communicator = None
    if "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        import chainermn  # noqa: PLC0415 - initialises MPI

        communicator = chainermn.create_communicator("naive")
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[communicator.intra_rank % len(cores)]})
    name, _, side = workload.partition("@")
    chain, shape, classes = (
        (LeNet5(), (1, 28, 28), 10) if name == "lenet5" else (ResNet50(), (3, int(side), int(side)), 1000)
    )
    stream = np.random.RandomState(0)  # the numpy that iDeep needs has no newer one
    x = stream.standard_normal((batch, *shape)).astype(np.float32)
    t = stream.randint(0, classes, batch).astype(np.int32)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9)
    if communicator is not None:
        optimizer = chainermn.create_multi_node_optimizer(optimizer, communicator)
    optimizer.setup(chain)
    ends, cpu = [], 0.0
    for step in range(warmup + steps):
        optimizer.update(chain, x, t)
        ends.append(time.monotonic())
        if step == warmup:
            cpu = time.process_time()
    line = {"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu}
    every = [line] if communicator is None else communicator.gather_obj(line)
    for each in every or []:
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
