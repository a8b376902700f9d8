"""Samples and tokens of compiled steps without a loader, by what goes into their calls, in real JAX and TensorFlow."""

from typing import NamedTuple

import pytest
from alone_and_attached import records_of

from steptime.attach.compiled.argument_amounts import (
    ALONE,
    EMPTY,
    LIKE_STATE,
    NO_TEXT,
    ORDER,
    REPEATED,
    UNLIKE,
    amount_of,
    find_data,
)

JAX = """
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
def drawn(*shape):
    return random.normal(size=shape).astype("f4")

w = {"a": jnp.array(drawn(32, 64) / 6), "b": jnp.zeros(64), "c": jnp.array(drawn(64, 4) / 8), "d": jnp.zeros(4)}
labels = lambda *shape: random.integers(0, 4, shape)

def passed(w, x):
    return jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"]

def loss(w, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(passed(w, x)), y[..., None], -1).mean()

def moved(w, *batch, loss=loss):
    value, gradient = jax.value_and_grad(loss)(w, *batch)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient), value

def repeat(step, batch, **options):
    global w
    step = jax.jit(step, **options)
    for _ in range(6):
        w, value = step(w, *batch())

class net:
    parameters = staticmethod(lambda: jax.tree.leaves(w))
"""
STEPS = {
    "inputs and labels": ("repeat(moved, lambda: (drawn(8, 32), labels(8)))", 8, NO_TEXT),
    "arguments that are given away": (
        "repeat(moved, lambda: (drawn(8, 32), labels(8)), donate_argnums=0)",
        8,
        NO_TEXT,
    ),
    "a dictionary": (
        "repeat(lambda w, b: moved(w, b['x'], b['y']), lambda: ({'x': drawn(8, 32), 'y': labels(8)},))",
        8,
        NO_TEXT,
    ),
    "moments of an optimizer": (
        """
moments = jax.tree.map(jnp.zeros_like, w)
@jax.jit
def step(w, moments, rate, x, y):
    gradient = jax.grad(loss)(w, x, y)
    moments = jax.tree.map(lambda a, b: 0.9 * a + b, moments, gradient)
    return jax.tree.map(lambda a, b: a - rate * b, w, moments), moments
for _ in range(6): w, moments = step(w, moments, 0.01, drawn(8, 32), labels(8))
""",
        8,
        NO_TEXT,
    ),
    "all in one argument": (
        """
step = jax.jit(lambda given: moved(given[0], *given[1]))
for _ in range(6): w, value = step((w, (drawn(8, 32), labels(8))))
""",
        8,
        NO_TEXT,
    ),
    "a key of random numbers": (
        """
noisy = lambda w, key, x, y: moved(w, x + jax.random.normal(key, x.shape), y)
repeat(noisy, lambda: (jax.random.PRNGKey(1), drawn(8, 32), labels(8)))
""",
        8,
        NO_TEXT,
    ),
    "two batches of one loss": (
        """
joined = lambda w, x, y, u: moved(w, jnp.concatenate([x, u]), jnp.concatenate([y, y]))
repeat(joined, lambda: (drawn(8, 32), labels(8), drawn(8, 32)))
""",
        8,
        NO_TEXT,
    ),
    "gradients added up": (
        """
compute = jax.jit(jax.value_and_grad(loss))
for _ in range(6):
    sums = jax.tree.map(jnp.zeros_like, w)
    for _ in range(3):
        value, gradient = compute(w, drawn(8, 32), labels(8))
        sums = jax.tree.map(jnp.add, sums, gradient)
    w = jax.tree.map(lambda a, b: a - 0.01 * b, w, sums)
""",
        24,
        NO_TEXT,
    ),
    "texts": (
        """
w = {**w, "words": jnp.array(drawn(50, 32))}
read = lambda w, x, y: loss(w, w["words"][x], y)
repeat(lambda w, x, y: moved(w, x, y, loss=read), lambda: (labels(8, 12), labels(8, 12)))
""",
        ORDER,
        96,
    ),
    "a sequence first": ("repeat(moved, lambda: (drawn(20, 8, 32), labels(20, 8)))", ORDER, NO_TEXT),
    "unequal batches": (
        "repeat(lambda w, x, y, u: moved(w, x + u.mean(0), y), lambda: (drawn(8, 32), labels(8), drawn(16, 32)))",
        UNLIKE,
        NO_TEXT,
    ),
    "one array": ("repeat(lambda w, x: moved(w, x, jnp.zeros(8, int)), lambda: (drawn(8, 32),))", ALONE, NO_TEXT),
    "an array like a weight": (
        "w['e'] = jnp.zeros((8, 32))\nrepeat(moved, lambda: (drawn(8, 32), labels(8)))",
        LIKE_STATE,
        LIKE_STATE,
    ),
    "steps in a loop": (
        """
def steps(w, x, y):
    return jax.lax.scan(lambda w, batch: moved(w, *batch), w, (x, y))[0], 0.0
repeat(steps, lambda: (drawn(5, 8, 32), labels(5, 8)))
""",
        REPEATED,
        REPEATED,
    ),
}


@pytest.fixture(scope="module")
def jax_steps(tmp_path_factory):
    scripts = {name: JAX + script for name, (script, _, _) in STEPS.items()}
    return records_of(tmp_path_factory.mktemp("jax"), "jax", "import jax\n", scripts)


def check(lines, *expected):
    """Claim that steps have these samples and tokens, or why they have none."""
    steps = [line for line in lines if line["kind"] == "step"]
    why = {phase: line["reason"] for line in lines if line["kind"] == "unseen" for phase in line["phases"]}
    assert len(steps) == 6
    for amount, known in zip(("samples", "tokens"), expected, strict=True):
        assert {step.get(amount, why.get(amount)) for step in steps} == {known}


@pytest.mark.framework("jax")
@pytest.mark.parametrize("name", STEPS)
def test_what_a_call_of_a_jax_step_takes_is_counted_or_why_it_is_not_is_on_record(jax_steps, name):
    check(jax_steps[name], *STEPS[name][1:])


TENSORFLOW = """
import numpy as np, tensorflow as tf
tf.keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
drawn = lambda *shape: random.normal(size=shape).astype("f4")
labels = lambda *shape: random.integers(0, 4, shape)
model = tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.SGD(0.01)
error = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer.build(model.trainable_variables)

class net:
    parameters = staticmethod(lambda: [each.numpy() for each in model.trainable_variables])

def learn(x, y):
    with tf.GradientTape() as tape:
        value = error(y, model(x, training=True))
    optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
    return value
"""
CALLS = {
    "arrays": ("tf.function(learn)", "drawn(8, 16), labels(8)", 8, NO_TEXT),
    "a pair": ("tf.function(lambda batch: learn(*batch))", "(drawn(8, 16), labels(8))", 8, NO_TEXT),
    "by name": ("tf.function(learn)", "x=tf.constant(drawn(8, 16)), y=tf.constant(labels(8))", 8, NO_TEXT),
    "a rate beside": ("tf.function(lambda x, y, rate: learn(x * rate, y))", "drawn(8, 16), labels(8), 0.5", 8, NO_TEXT),
    "one array": (
        "tf.function(lambda x: learn(x, tf.zeros(8, tf.int32)))",
        "tf.constant(drawn(8, 16))",
        ALONE,
        NO_TEXT,
    ),
    "nothing": ("tf.function(lambda: learn(tf.random.normal((8, 16)), tf.zeros(8, tf.int32)))", "", EMPTY, EMPTY),
}


@pytest.fixture(scope="module")
def tensorflow_steps(tmp_path_factory):
    loop = "step = {}\nfor _ in range(6): step({})\n"
    scripts = {name: TENSORFLOW + loop.format(*call[:2]) for name, call in CALLS.items()}
    return records_of(tmp_path_factory.mktemp("tensorflow"), "tensorflow", "import tensorflow\n", scripts)


@pytest.mark.framework("tensorflow")
@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_of_a_tensorflow_step_takes_is_counted_or_why_it_is_not_is_on_record(tensorflow_steps, name):
    check(tensorflow_steps[name], *CALLS[name][2:])


class Array(NamedTuple):
    """What is looked at of an array."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def test_an_argument_is_of_the_state_if_all_of_it_comes_back():
    weights, moments = [Array((4, 8)), Array((8,))], [Array((4, 8)), Array((8,))]
    batch = [Array((16, 4)), Array((16,), "int32")]
    assert find_data([weights, moments, batch], [*weights, *moments, Array(())]) == [4, 5]
    assert find_data([batch, weights], weights) == [0, 1]
    assert find_data([weights, [Array((4, 8))]], weights) == LIKE_STATE


def test_where_most_of_an_argument_comes_back_the_others_are_data():
    state, batch = [Array((4, 8)), Array((8,)), Array((4, 8)), Array((8,))], [Array((16, 4)), Array((16,), "int32")]
    assert find_data([[*state, *batch]], [*state, Array(())]) == [4, 5]
    assert find_data([[*batch, *state], []], state) == [0, 1]
    assert find_data([[*state, Array((4, 8))]], state) == LIKE_STATE


def test_pictures_alone_show_their_samples():
    assert amount_of([((32, 64, 64, 3), "float32")]).samples == 32
    assert amount_of([((3, 64, 64, 32), "float32")]).why_no_samples == ALONE
