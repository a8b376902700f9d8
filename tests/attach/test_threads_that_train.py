"""Trainings in a thread other than the one that imported the library, as Ray Train's workers have them."""

import pytest
from alone_and_attached import record_of

STEPS = 12
THREAD = """
import threading
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
JAX = """
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
w = [jnp.array(random.normal(size=size), "float32") for size in ((16, 16), (16,), (16, 16), (16,))]
error = lambda w, x: jnp.mean((jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]) ** 2)
batch = lambda: random.normal(size=(8, 16)).astype("float32")
def show(): print(*(float(each.sum()) for each in w))
"""
TENSORFLOW = """
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
x, y = tf.random.normal((96, 16)), tf.random.uniform((96,), 0, 4, tf.int64)
batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
net = tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.SGD(0.1)
error = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
def update(x, y):
    with tf.GradientTape() as tape:
        loss = error(y, net(x, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
def show(): print(*(float(tf.reduce_sum(each)) for each in net.trainable_variables))
"""
SCRIPTS = {
    "a jitted step": (
        "jax",
        JAX,
        """
    global w
    step = jax.jit(lambda w, x: jax.tree.map(lambda a, b: a - 0.1 * b, w, jax.grad(error)(w, x)))
    for _ in range(12): w = step(w, batch())
""",
    ),
    "a jitted gradient, and its update": (
        "jax",
        JAX,
        """
    global w
    compute = jax.jit(jax.grad(error))
    update = jax.jit(lambda w, gradient: jax.tree.map(lambda a, b: a - 0.1 * b, w, gradient))
    evaluate = jax.jit(error)
    evaluate(w, batch())
    for _ in range(12): w = update(w, compute(w, batch()))
""",
    ),
    "a tf.function": (
        "tensorflow",
        TENSORFLOW,
        """
    step = tf.function(update)
    for x, y in batches: step(x, y)
""",
    ),
    "Keras' fit": (
        "tensorflow",
        TENSORFLOW,
        """
    net.compile(optimizer, error)
    net.fit(batches, verbose=0)
""",
    ),
    "eager TensorFlow": ("tensorflow", TENSORFLOW, "\n    for x, y in batches: update(x, y)\n"),
    "MXNet": (
        "mxnet",
        """
import mxnet as mx
from mxnet import autograd, gluon

mx.random.seed(0)
net = gluon.nn.Dense(4, in_units=16)
net.initialize(mx.init.One())
trainer = gluon.Trainer(net.collect_params(), "sgd", update_on_kvstore=False)
def show(): print(float(net.weight.data().sum().asscalar()))
""",
        """
    for _ in range(12):
        with autograd.record():
            loss = (net(mx.nd.ones((8, 16))) ** 2).mean()
        loss.backward()
        trainer.step(8)
""",
    ),
    "Paddle": (
        "paddle",
        """
import paddle

paddle.seed(0)
net = paddle.nn.Linear(16, 4)
optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
def show(): print(float(net.weight.sum()))
""",
        """
    for _ in range(12):
        (net(paddle.ones((8, 16))) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
""",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.framework(script[0])) for name, script in SCRIPTS.items()]
)
def test_the_steps_of_another_thread_are_on_record(tmp_path, name):
    framework, begin, body = SCRIPTS[name]
    lines = record_of(tmp_path, framework, f"{begin}\ndef train():{body}\n{THREAD}\nshow()\n")
    assert len([line for line in lines if line["kind"] == "step"]) >= STEPS - 2


def test_a_thread_that_computes_no_gradient_is_not_recorded_in_place_of_the_first(tmp_path):
    script = f"""{JAX}
def train():
    for _ in range(20): jax.jit(lambda x: x * 2 + 1)(batch())
{THREAD}
step = jax.jit(lambda w, x: jax.tree.map(lambda a, b: a - 0.1 * b, w, jax.grad(error)(w, x)))
for _ in range(12): w = step(w, batch())
show()
"""
    lines = record_of(tmp_path, "jax", script)
    assert len([line for line in lines if line["kind"] == "step"]) == STEPS


test_a_thread_that_computes_no_gradient_is_not_recorded_in_place_of_the_first.pytestmark = pytest.mark.framework("jax")
