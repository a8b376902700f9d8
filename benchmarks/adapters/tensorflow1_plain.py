"""A plain loop of TensorFlow 1, alone, as an expert would write it; see race_plain.py for its arguments.

One graph over ``tf.nn`` and ``tf.train``, on a batch that lies in a variable. It knows lenet5 and no servers.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow.compat.v1 as tf


def main(batch, steps, warmup):  # noqa: ANN001, ANN201 - Python 3.7 and no types in TensorFlow 1
    """Train and print the ends of the timed steps."""
    images = local(tf.random_normal((batch, 28, 28, 1)))
    labels = local(tf.random_uniform((batch,), maxval=10, dtype=tf.int64))
    logits = lenet5(images)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    ends = []
    settings = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Session(config=settings) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        step = session.make_callable([loss, train])
        for index in range(warmup + steps):
            step()
            ends.append(time.monotonic())
            if index == warmup:
                cpu_before = time.process_time()
        print(json.dumps({"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu_before}), flush=True)


def lenet5(x):  # noqa: ANN001, ANN201
    """Two convolutions and three linear layers."""
    x = tf.nn.max_pool2d(conv(x, 5, 6, "SAME", "conv1"), 2, 2, "VALID")
    x = tf.nn.max_pool2d(conv(x, 5, 16, "VALID", "conv2"), 2, 2, "VALID")
    x = tf.nn.relu(dense(tf.reshape(x, (-1, 400)), 120, "fc1"))
    return dense(tf.nn.relu(dense(x, 84, "fc2")), 10, "fc3")


def conv(x, size, channels, padding, name):  # noqa: ANN001, ANN201
    """A convolution with its activation."""
    kernel = weight((size, size, x.shape.as_list()[-1], channels), name)
    bias = tf.get_variable(name + "_bias", (channels,), initializer=tf.zeros_initializer(), use_resource=True)
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, padding), bias))


def dense(x, outputs, name):  # noqa: ANN001, ANN201
    """A linear layer."""
    bias = tf.get_variable(name + "_bias", (outputs,), initializer=tf.zeros_initializer(), use_resource=True)
    return tf.nn.bias_add(tf.matmul(x, weight((x.shape.as_list()[-1], outputs), name)), bias)


def weight(shape, name):  # noqa: ANN001, ANN201
    """A trainable array of He-normal values."""
    return tf.get_variable(name, shape, initializer=tf.variance_scaling_initializer(2.0), use_resource=True)


def local(start):  # noqa: ANN001, ANN201
    """A batch that stays where it is."""
    return tf.Variable(start, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], use_resource=True)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    if sys.argv[1] != "lenet5" or len(sys.argv) > 5:
        sys.exit("this loop trains lenet5 alone")
    main(*map(int, sys.argv[2:5]))
