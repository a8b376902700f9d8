"""A plain TensorFlow loop with Horovod's gradient tape; see race_plain.py for its arguments.

With one worker, Horovod is left out, as in the adapter's strategy ``single``. In the tier ``tuned`` oneDNN is switched
on and the loss is divided by the number of workers, instead of every gradient.
"""

import json
import os
import sys
import time

# Left off by default where there is no AVX-512 VNNI.
os.environ.update({"TF_ENABLE_ONEDNN_OPTS": "1"} if os.environ.get("RACE_TUNING") == "tuned" else {})

import tensorflow as tf
from horovod_meeting import meet
from tensorflow_plain import TUNED, VARIABLES, lenet5, resnet50


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    name, _, side = workload.partition("@")
    net, shape, classes = (
        (lenet5(), (28, 28, 1), 10) if name == "lenet5" else (resnet50(), (int(side),) * 2 + (3,), 1000)
    )
    velocities = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in VARIABLES]
    images = tf.random.normal((batch, *shape))
    labels = tf.random.uniform((batch,), maxval=classes, dtype=tf.int64)
    averaged = lambda tape: tape  # noqa: E731 - replaced where there are several workers
    share = 1.0
    if meeting:
        meet(*meeting)
        import horovod.tensorflow as hvd  # noqa: PLC0415 - one worker goes without

        hvd.init()
        hvd.broadcast_variables(VARIABLES, root_rank=0)
        averaged = hvd.DistributedGradientTape
        if TUNED:
            averaged = lambda tape: hvd.DistributedGradientTape(tape, op=hvd.Sum)  # noqa: E731
            share = 1.0 / hvd.size()

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
            loss = tf.reduce_mean(losses) * share
        gradients = averaged(tape).gradient(loss, VARIABLES)
        for variable, velocity, gradient in zip(VARIABLES, velocities, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle, accum=velocity.handle, lr=0.01, grad=gradient, momentum=0.9
            )
        return loss

    ends = []
    for index in range(warmup + steps):
        step(images, labels)
        ends.append(time.monotonic())
        if index == warmup:
            cpu_before = time.process_time()
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu_before}), flush=True)
    if meeting:
        hvd.shutdown()
        os._exit(0)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
