"""A plain gluon training loop, as an expert of MXNet would write it; see race_plain.py for its arguments.

In the tier ``tuned`` the engine runs larger groups of operators, and large arrays are updated one by one.

With a role it trains on MXNet's key-value store ``dist_sync`` with one server (race with ``--servers 1``); otherwise
alone. Like real training it looks at the loss now and then, every ``LOOK`` steps, and never else waits for the
engine; the ends of the steps in between are placed evenly. The engine is asynchronous, so that a clock read after
each step would time the issuing of steps and not the steps, and a wait after each step would slow them down.
"""

import json
import os
import sys
import time

LOOK = 10


def join_store(role: str, workers: int, root: str) -> None:
    """Tell MXNet, before it is imported, who this process is."""
    host, _, port = root.rpartition(":")
    os.environ.update(
        DMLC_ROLE=role if role in {"scheduler", "server"} else "worker",
        DMLC_PS_ROOT_URI=host,
        DMLC_PS_ROOT_PORT=port,
        DMLC_NUM_SERVER="1",
        DMLC_NUM_WORKER=str(workers),
        DMLC_INTERFACE="lo",
    )


def tune(workload: str) -> None:
    """Set, before MXNet is imported, what an expert sets in the tier ``tuned``."""
    if os.environ.get("RACE_TUNING") == "tuned":
        os.environ["MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN"] = "1000"
        os.environ["MXNET_OPTIMIZER_AGGREGATION_SIZE"] = "4" if workload == "lenet5" else "1"


def main(workload: str, batch: int, steps: int, warmup: int, workers: int, kvstore: str | None) -> None:  # noqa: PLR0913, PLR0917 - the command line's
    """Train and print the ends of the timed steps."""
    tune(workload)
    import mxnet as mx  # noqa: PLC0415 - in a server, the import serves and never returns
    from mxnet import autograd, gluon  # noqa: PLC0415

    name, _, side = workload.partition("@")
    if name in OF_TOKENS:
        net, shape, classes = OF_TOKENS[name](), (64,), 256
    else:
        net, shape, classes = (
            (lenet5(gluon.nn), (1, 28, 28), 10) if name == "lenet5" else (resnet50(), (3, int(side), int(side)), 1000)
        )
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    compute_loss = gluon.loss.SoftmaxCrossEntropyLoss()
    compute_loss.hybridize(static_alloc=True, static_shape=True)
    data = mx.nd.random.normal(shape=(batch, *shape))
    label = mx.nd.random.randint(0, classes, shape=(batch,)).astype("float32")
    if name in OF_TOKENS:
        data, label = (mx.nd.random.randint(0, classes, shape=(batch, 64)).astype("float32") for _ in range(2))
    settings = {"learning_rate": 0.01, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=kvstore)
    ends, cpu_before_s = [0.0], 0.0
    for step in range(1 - warmup, steps + 1):
        with autograd.record():
            loss = compute_loss(net(data), label)
        loss.backward()
        trainer.step(batch * workers)
        if step == 0:
            mx.nd.waitall()
            ends, cpu_before_s = [time.monotonic()], time.process_time()
        elif step > 0 and (step % LOOK == 0 or step == steps):
            loss.mean().asscalar()
            mx.nd.waitall()
            ends = evenly(ends, time.monotonic(), step)
    cpu_s = (time.process_time() - cpu_before_s) * (steps - 1) / steps
    print(json.dumps({"ends_s": ends[1:], "cpu_s": cpu_s}), flush=True)
    # Leaves the store, which waits for the other workers.
    trainer._kvstore = None  # noqa: SLF001 - the trainer has no method that does


def evenly(ends: list[float], now: float, step: int) -> list[float]:
    """Return ``ends`` filled up to ``step``, which ended ``now``."""
    missing = step + 1 - len(ends)
    return [*ends, *(ends[-1] + (now - ends[-1]) * (index + 1) / missing for index in range(missing))]


def lenet5(nn):  # noqa: ANN001, ANN201 - gluon has no types
    """Two convolutions and three linear layers."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2, strides=2),
        nn.Conv2D(16, 5, activation="relu"),
        nn.MaxPool2D(2, strides=2),
        nn.Flatten(),
        nn.Dense(120, activation="relu"),
        nn.Dense(84, activation="relu"),
        nn.Dense(10),
    )
    return net


def llama():  # noqa: ANN201
    """Four blocks of Llama's architecture, of width 128 over bytes, 64 in a sequence."""
    import numpy as np  # noqa: PLC0415 - as MXNet's
    from mxnet.gluon import nn  # noqa: PLC0415

    angles = np.outer(np.arange(64), 10_000.0 ** (-np.arange(0, 32, 2) / 32))[None, :, None]
    hidden = np.tile(np.triu(np.full((64, 64), -1e30), 1), (2, 1))[None]

    class RMSNorm(nn.HybridBlock):
        """Each token over the root of its mean square."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = self.params.get("scale", shape=(1, 1, 128), init="ones")

        def hybrid_forward(self, F, x, scale):  # noqa: ANN001, ANN202, N803 - gluon's signature
            inverse = F.rsqrt(F.mean(F.square(x), axis=-1, keepdims=True) + 1e-5)
            return F.broadcast_mul(F.broadcast_mul(x, inverse), scale)

    def dense(outputs: int, inputs: int):  # noqa: ANN202
        return nn.Dense(outputs, use_bias=False, flatten=False, in_units=inputs)

    class Block(nn.HybridBlock):
        """Grouped attention and a SwiGLU layer, each behind a norm."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.qkv, self.out, self.gate_up, self.down = (
                dense(256, 128),
                dense(128, 128),
                dense(688, 128),
                dense(128, 344),
            )
            self.cosines = self.params.get_constant("cosines", np.cos(angles))
            self.sines = self.params.get_constant("sines", np.sin(angles))
            self.hidden = self.params.get_constant("hidden", hidden)

        def hybrid_forward(self, F, x, cosines, sines, hidden):  # noqa: ANN001, ANN202, N803
            heads = F.reshape(self.qkv(self.norm1(x)), (-1, 64, 8, 32))
            first, second = F.split(F.slice_axis(heads, axis=2, begin=0, end=6), num_outputs=2, axis=-1)
            turned = F.concat(
                F.broadcast_mul(first, cosines) - F.broadcast_mul(second, sines),
                F.broadcast_mul(second, cosines) + F.broadcast_mul(first, sines),
                dim=-1,
            )
            queries = F.reshape(F.slice_axis(turned, axis=2, begin=0, end=4), (-1, 64, 2, 2, 32))
            queries = F.reshape(F.transpose(queries, (3, 1, 0, 2, 4)), (128, -1, 64))
            keys = F.slice_axis(turned, axis=2, begin=4, end=None)
            mixed = F.concat(keys, F.slice_axis(heads, axis=2, begin=6, end=None), dim=-1)
            mixed = F.reshape(F.transpose(mixed, (1, 0, 2, 3)), (64, -1, 128))
            scores = F.broadcast_add(F.contrib.interleaved_matmul_encdec_qk(queries, mixed, heads=2), hidden)
            y = F.contrib.interleaved_matmul_encdec_valatt(mixed, F.softmax(scores, axis=-1), heads=2)
            y = F.transpose(F.reshape(y, (2, 64, -1, 2, 32)), (2, 1, 3, 0, 4))
            x = x + self.out(F.reshape(y, (-1, 64, 128)))
            gate, up = F.split(self.gate_up(self.norm2(x)), num_outputs=2, axis=-1)
            return x + self.down(gate * F.sigmoid(gate) * up)

    net = nn.HybridSequential()
    net.add(nn.Embedding(256, 128), *(Block() for _ in range(4)), RMSNorm(), dense(256, 128))
    return net


def gpt2():  # noqa: ANN201
    """Four blocks of GPT-2's architecture, of width 128 over bytes, 64 in a sequence; the head is the embedding."""
    import numpy as np  # noqa: PLC0415 - as MXNet's
    from mxnet.gluon import nn  # noqa: PLC0415

    hidden = np.triu(np.full((64, 64), -1e30), 1)[None]

    def dense(outputs: int, inputs: int):  # noqa: ANN202
        return nn.Dense(outputs, flatten=False, in_units=inputs)

    class Block(nn.HybridBlock):
        """Causal attention and a GELU layer, each behind a layer norm; tokens lie before samples."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(in_channels=128), nn.LayerNorm(in_channels=128)
            self.qkv, self.out, self.up, self.down = (
                dense(384, 128),
                dense(128, 128),
                dense(512, 128),
                dense(128, 512),
            )
            self.hidden = self.params.get_constant("hidden", hidden)

        def hybrid_forward(self, F, x, hidden):  # noqa: ANN001, ANN202, N803 - gluon's signature
            mixed = self.qkv(self.norm1(x))
            scores = F.broadcast_add(F.contrib.interleaved_matmul_selfatt_qk(mixed, heads=4), hidden)
            y = F.contrib.interleaved_matmul_selfatt_valatt(mixed, F.softmax(scores, axis=-1), heads=4)
            x = x + self.out(y)
            up = self.up(self.norm2(x))
            return x + self.down(0.5 * up * (1.0 + F.tanh((2 / np.pi) ** 0.5 * (up + 0.044715 * up * up * up))))

    class GPT2(nn.HybridBlock):
        """The blocks between the embedding and itself."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = self.params.get("embedding", shape=(256, 128))
            self.positions = self.params.get("positions", shape=(64, 1, 128))
            self.blocks = nn.HybridSequential()
            self.blocks.add(*(Block() for _ in range(4)), nn.LayerNorm(in_channels=128))

        def hybrid_forward(self, F, x, embedding, positions):  # noqa: ANN001, ANN202, N803
            x = F.Embedding(F.transpose(x), embedding, input_dim=256, output_dim=128)
            x = self.blocks(F.broadcast_add(x, positions))
            scores = F.FullyConnected(x, embedding, num_hidden=256, no_bias=True, flatten=False)
            return F.transpose(scores, (1, 0, 2))

    return GPT2()


OF_TOKENS = {"llama_tiny": llama, "gpt2_tiny": gpt2}


def resnet50():  # noqa: ANN201
    """ResNet-50 v1.5 for 1000 classes, written out: the model zoo's v1 has the stride in the first convolution."""
    from mxnet.gluon import nn  # noqa: PLC0415

    class Bottleneck(nn.HybridBlock):
        """Three convolutions beside a shortcut; the stride sits in the second."""

        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(
                nn.Conv2D(width, 1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(width, 3, strides=stride, padding=1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(4 * width, 1, use_bias=False),
                nn.BatchNorm(),
            )
            self.shortcut = None
            if inputs != 4 * width or stride != 1:
                self.shortcut = nn.HybridSequential()
                self.shortcut.add(nn.Conv2D(4 * width, 1, strides=stride, use_bias=False), nn.BatchNorm())

        def hybrid_forward(self, F, x):  # noqa: ANN001, ANN202, N803 - gluon's signature
            return F.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(64, 7, strides=2, padding=3, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(3, strides=2, padding=1),
    )
    inputs = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            net.add(Bottleneck(inputs, 64 * 2**stage, 2 if stage and not block else 1))
            inputs = 4 * 64 * 2**stage
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(1000))
    return net


if __name__ == "__main__":
    if len(sys.argv) > 5:
        join_store(sys.argv[5], int(sys.argv[6]), sys.argv[7])
    main(
        sys.argv[1],
        *map(int, sys.argv[2:5]),
        workers=int(sys.argv[6]) if len(sys.argv) > 5 else 1,
        kvstore="dist_sync" if len(sys.argv) > 5 else None,
    )
