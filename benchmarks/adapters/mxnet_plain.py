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
    net, shape, classes = (
        (lenet5(gluon.nn), (1, 28, 28), 10) if name == "lenet5" else (resnet50(), (3, int(side), int(side)), 1000)
    )
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    compute_loss = gluon.loss.SoftmaxCrossEntropyLoss()
    compute_loss.hybridize(static_alloc=True, static_shape=True)
    data = mx.nd.random.normal(shape=(batch, *shape))
    label = mx.nd.random.randint(0, classes, shape=(batch,)).astype("float32")
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
