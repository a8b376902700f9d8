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


class RMSNorm(chainer.Link):
    """Each token over the root of its mean square."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.scale = chainer.Parameter(1, (128,))

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Return the normalised tokens, (tokens, 128)."""
        inverse = F.rsqrt(F.mean(x * x, axis=1, keepdims=True) + 1e-5)
        return F.scale(x * F.broadcast_to(inverse, x.shape), self.scale)


ANGLES = np.outer(np.arange(64), 10_000.0 ** (-np.arange(0, 32, 2) / 32))
COSINES, SINES = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
HIDDEN = np.tile(np.triu(np.full((64, 64), -1e30, dtype=np.float32), 1), (2, 1))


class LlamaBlock(chainer.Chain):
    """Grouped attention and a SwiGLU layer, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.qkv, self.out = L.Linear(128, 256, nobias=True), L.Linear(128, 128, nobias=True)
            self.gate_up, self.down = L.Linear(128, 688, nobias=True), L.Linear(344, 128, nobias=True)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Return the block's output, (tokens of the batch, 128)."""
        heads = F.transpose(F.reshape(self.qkv(self.norm1(x)), (-1, 64, 8, 32)), (0, 2, 1, 3))
        first, second = F.split_axis(heads[:, :6], 2, axis=3)
        turned = F.concat([first * COSINES - second * SINES, second * COSINES + first * SINES], axis=3)
        queries = F.reshape(turned[:, :4] * 32**-0.5, (-1, 2, 128, 32))  # heads that share keys follow each other
        shares = F.softmax(F.matmul(queries, turned[:, 4:], transb=True) + HIDDEN, axis=3)
        y = F.reshape(F.matmul(shares, heads[:, 6:]), (-1, 4, 64, 32))
        x = x + self.out(F.reshape(F.transpose(y, (0, 2, 1, 3)), (-1, 128)))
        gate, up = F.split_axis(self.gate_up(self.norm2(x)), 2, axis=1)
        return x + self.down(gate * F.sigmoid(gate) * up)


class Llama(chainer.Chain):
    """Four blocks of width 128 over bytes, 64 in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embedding, self.blocks = L.EmbedID(256, 128), chainer.Sequential(*(LlamaBlock() for _ in range(4)))
            self.norm, self.head = RMSNorm(), L.Linear(128, 256, nobias=True)

    def forward(self, x: np.ndarray, t: np.ndarray) -> chainer.Variable:
        """Return the loss of a batch."""
        h = self.blocks(F.reshape(self.embedding(x), (-1, 128)))
        return F.softmax_cross_entropy(self.head(self.norm(h)), t)


class GPT2Block(chainer.Chain):
    """Causal attention and a GELU layer, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.norm1, self.norm2 = L.LayerNormalization(128), L.LayerNormalization(128)
            self.qkv, self.out = L.Linear(128, 384), L.Linear(128, 128)
            self.up, self.down = L.Linear(128, 512), L.Linear(512, 128)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Return the block's output, (tokens of the batch, 128)."""
        heads = F.transpose(F.reshape(self.qkv(self.norm1(x)), (-1, 64, 3, 4, 32)), (2, 0, 3, 1, 4))
        queries, keys, values = F.separate(heads, axis=0)
        shares = F.softmax(F.matmul(queries * 32**-0.5, keys, transb=True) + HIDDEN[:64], axis=3)
        x = x + self.out(F.reshape(F.transpose(F.matmul(shares, values), (0, 2, 1, 3)), (-1, 128)))
        up = self.up(self.norm2(x))
        return x + self.down(0.5 * up * (1.0 + F.tanh((2 / np.pi) ** 0.5 * (up + 0.044715 * up * up * up))))


class GPT2(chainer.Chain):
    """Four blocks of width 128 over bytes, 64 in a sequence; the head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embedding, self.positions = L.EmbedID(256, 128), chainer.Parameter(0, (64, 128))
            self.blocks = chainer.Sequential(*(GPT2Block() for _ in range(4)))
            self.norm = L.LayerNormalization(128)

    def forward(self, x: np.ndarray, t: np.ndarray) -> chainer.Variable:
        """Return the loss of a batch."""
        h = self.embedding(x) + F.broadcast_to(self.positions[None], (*x.shape, 128))
        h = self.norm(self.blocks(F.reshape(h, (-1, 128))))
        return F.softmax_cross_entropy(F.linear(h, self.embedding.W), t)


OF_TOKENS = {"llama_tiny": Llama, "gpt2_tiny": GPT2}


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
    chain, shape, classes = (LeNet5(), (1, 28, 28), 10) if not side else (ResNet50(), (3, int(side), int(side)), 1000)
    stream = np.random.RandomState(0)  # the numpy that iDeep needs has no newer one
    x = stream.standard_normal((batch, *shape)).astype(np.float32)
    t = stream.randint(0, classes, batch).astype(np.int32)
    if name in OF_TOKENS:
        chain, tokens = OF_TOKENS[name](), stream.randint(0, 256, (batch, 65)).astype(np.int32)
        x, t = tokens[:, :64], tokens[:, 1:].reshape(-1)
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
