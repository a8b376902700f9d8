"""A plain gluon loop with Horovod's trainer; see race_plain.py for its arguments, mxnet_plain.py for its clock.

With one worker, Horovod is left out, as in the adapter's strategy ``single``.
"""

import json
import os
import sys
import time

from horovod_meeting import meet
from mxnet_plain import LOOK, evenly, lenet5, resnet50, tune


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    tune(workload)
    import mxnet as mx  # noqa: PLC0415 - not in the core
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
    net(data).wait_to_read()  # makes the parameters, whose shapes are known from now on
    if meeting:
        meet(*meeting)
        import horovod.mxnet as hvd  # noqa: PLC0415 - one worker goes without

        hvd.init()
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", settings)
    else:
        trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=None)
    ends, cpu_before_s = [0.0], 0.0
    for step in range(1 - warmup, steps + 1):
        with autograd.record():
            loss = compute_loss(net(data), label)
        loss.backward()
        trainer.step(batch)
        if step == 0:
            mx.nd.waitall()
            ends, cpu_before_s = [time.monotonic()], time.process_time()
        elif step > 0 and (step % LOOK == 0 or step == steps):
            loss.mean().asscalar()
            mx.nd.waitall()
            ends = evenly(ends, time.monotonic(), step)
    cpu_s = (time.process_time() - cpu_before_s) * (steps - 1) / steps
    print(json.dumps({"ends_s": ends[1:], "cpu_s": cpu_s}), flush=True)
    if meeting:
        hvd.shutdown()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
