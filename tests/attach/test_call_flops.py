"""Floating-point operations of compiled steps (`attach --flops`): those of products, or null with the reason."""

import json
import os
import subprocess

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

LIMIT_S = 240


def printed(folder, framework, script, *, attached=True):
    """Return the lines that a script prints, attached with operations counted, or alone."""
    (folder / "script.py").write_text(script)
    variables = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=True) if attached else {}
    words = [interpreter_for(framework), "script.py"]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def recorded(folder):
    """Return the lines of the one record, by kind."""
    (path,) = (folder / "record").glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    assert [line for line in lines if line["kind"] == "fault"] == []
    return {kind: [line for line in lines if line["kind"] == kind] for kind in ("flops", "weights", "note", "step")}


BEGIN = """
import numpy as np, tensorflow as tf
from steptime_attach.compiled import tensorflow_flops as flops
layers, B = tf.keras.layers, 8

def step_of(model, forward=None, shape=(B, 4), **options):
    forward = forward or model
    @tf.function(**options)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(forward(x) - y, tf.float32) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        for w, g in zip(model.trainable_variables, gradients):
            w.assign_sub(0.1 * tf.convert_to_tensor(g))
        return loss
    return step

def show(name, step, *call, iterators=()):
    step(*call)
    graph = step._list_all_concrete_functions()[-1].graph
    try:
        print(name, flops.operations_of(graph, flops.CallShapes((call, {}), iterators)))
    except ValueError as error:
        print(name, error)

def model_of(shape, *made):
    model = tf.keras.Sequential([tf.keras.Input(shape), *made])
    return model

x, y = tf.random.normal((B, 16)), tf.random.normal((B, 4))
"""
GRAPHS = (
    BEGIN
    + """
net = model_of((16,), layers.Dense(32), layers.Dense(4))
show("dense", step_of(net), x, y)
open_sizes = [tf.TensorSpec((None, 16)), tf.TensorSpec((None, 4))]
show("open", step_of(net, input_signature=open_sizes), x, y)
show("jit", step_of(net, jit_compile=True), x, y)
show("inner", step_of(net, tf.function(net), input_signature=open_sizes), x, y)
images = tf.random.normal((B, 8, 8, 4))
show("conv", step_of(model_of((8, 8, 4), layers.Conv2D(16, 3, padding="same"))), images, tf.zeros((B, 8, 8, 16)))
show("grouped", step_of(model_of((8, 8, 4), layers.Conv2D(16, 3, padding="same", groups=2))), images,
     tf.zeros((B, 8, 8, 16)))
show("depthwise", step_of(model_of((8, 8, 4), layers.DepthwiseConv2D(3, padding="same"))), images, images)
show("transposed", step_of(model_of((8, 8, 4), layers.Conv2DTranspose(16, 2, strides=2))), images,
     tf.zeros((B, 16, 16, 16)))
texts = tf.random.normal((B, 12, 32))
inputs = tf.keras.Input((12, 32))
attention = tf.keras.Model(inputs, layers.MultiHeadAttention(2, 16, use_bias=False)(inputs, inputs))
show("attention", step_of(attention), texts, texts)
words = tf.keras.Sequential([tf.keras.Input((12,), dtype="int32"), layers.Embedding(50, 32), layers.Dense(4)])
show("embedding", step_of(words), tf.zeros((B, 12), tf.int32), tf.zeros((B, 12, 4)))
show("loop", step_of(model_of((12, 32), layers.LSTM(8))), texts, tf.zeros((B, 8)))
show("branch", step_of(net, lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: net(x), lambda: -net(x))), x, y)

def of_dataset(name, dataset):
    made = step_of(net)
    iterator = iter(dataset)
    step = tf.function(lambda iterator: made.python_function(*next(iterator)))
    show(name, step, iterator, iterators=[iterator])

samples = tf.data.Dataset.from_tensor_slices((tf.random.normal((64, 16)), tf.random.normal((64, 4))))
of_dataset("dataset", samples.shuffle(8).batch(B).map(lambda x, y: (x + 1, y)).prefetch(1))
of_dataset("rebatched", samples.batch(32).flat_map(lambda x, y: tf.data.Dataset.from_tensors((x[:3], y[:3]))))
"""
)
B = 8
_DENSE = 2 * B * (2 * 16 * 32 + 3 * 32 * 4)
"""Forward and of weights twice, of inputs in the second layer alone."""
_PROJECTED, _SCORES = 2 * B * 12 * 32 * 32, 2 * B * 12 * 12 * 32
COUNTS = {
    "dense": _DENSE,
    "open": _DENSE,
    "jit": _DENSE,
    "inner": _DENSE,
    "conv": 2 * 2 * B * 8 * 8 * 16 * 3 * 3 * 4,
    "grouped": 2 * 2 * B * 8 * 8 * 16 * 3 * 3 * 2,
    "depthwise": 2 * 2 * B * 8 * 8 * 4 * 3 * 3,
    "transposed": 2 * 2 * B * 8 * 8 * 4 * 2 * 2 * 16,
    # Query, key, value and output: weights of all four, inputs of the last; scores and their sum: of both factors.
    "attention": _PROJECTED * (4 + 4 + 1) + _SCORES * 2 * 3,
    "embedding": 2 * B * 12 * 32 * 4 * 3,
    "dataset": _DENSE,
}
REASONS = {"loop": "how often", "branch": "how often", "rebatched": "fixes no shape"}


@pytest.mark.framework("tensorflow")
def test_products_in_graphs_of_tensorflow_are_counted_whatever_holds_them(tmp_path):
    lines = dict(line.split(" ", 1) for line in printed(tmp_path, "tensorflow", GRAPHS))

    assert {name: int(lines[name]) for name in COUNTS} == COUNTS
    assert [name for name, reason in REASONS.items() if reason not in lines[name]] == []


KERAS = """
import numpy as np, tensorflow as tf
tf.keras.utils.set_random_seed(0)
net = tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(32), tf.keras.layers.Dense(4)])
numbers = np.random.default_rng(0)
x, y = numbers.standard_normal((60, 16), np.float32), numbers.standard_normal((60, 4), np.float32)
net.compile("sgd", "mse", run_eagerly=EAGER)
net.fit(x, y, batch_size=8, epochs=2, validation_data=(x[:20], y[:20]), verbose=0)
print([w.numpy().tobytes().hex() for w in net.weights])
"""


@pytest.mark.framework("tensorflow")
def test_a_step_of_fit_over_arrays_is_counted_by_the_size_of_their_batches(tmp_path):
    script = KERAS.replace("EAGER", "False")
    assert printed(tmp_path, "tensorflow", script) == printed(tmp_path, "tensorflow", script, attached=False)

    lines = recorded(tmp_path)
    assert [line.get("forward") for line in lines["flops"]] == [_DENSE]
    assert [line["precisions"] for line in lines["weights"]] == [["fp32"]]


@pytest.mark.framework("tensorflow")
def test_eager_steps_have_no_count_and_the_reason(tmp_path):
    printed(tmp_path, "tensorflow", KERAS.replace("EAGER", "True"))

    (line,) = recorded(tmp_path)["flops"]
    assert "forward" not in line
    assert line["reason"] == "step 1 had no call of a compiled function with a gradient"


JAX = """
import jax, jax.numpy as jnp
from jax import lax
from steptime_attach.compiled import jax_programs

w, x = jnp.ones((6, 16, 16)), jnp.ones((8, 16))

def scanned(w, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()

def nested(w, x):
    return lax.scan(lambda x, _: (lax.scan(lambda x, w: (x @ w, None), x, w)[0], None), x, None, 3)[0].sum()

def unrolled(w, x):
    for each in w:
        x = jnp.tanh(x @ each)
    return x.sum()

def while_loop(w, x):
    return lax.while_loop(lambda c: c[0] < 6, lambda c: (c[0] + 1, c[1] @ w[0]), (0, x))[1].sum()

def while_without(w, x):
    return lax.while_loop(lambda c: c < 6.0, lambda c: c + 1.0, 0.0) * (x @ w[0]).sum()

def show(function):
    try:
        print(function.__name__, jax_programs.repeated_products(jax.make_jaxpr(function)(w, x).jaxpr))
    except ValueError as error:
        print(function.__name__, error)

for function in (scanned, nested, unrolled, while_loop, while_without):
    show(function)

def gradient(w, x):
    return jax.grad(scanned)(w, x)

show(gradient)
vg, up = jax.jit(jax.value_and_grad(scanned)), jax.jit(lambda w, g: w - 0.01 * g)
for number in range(4):
    total = 0
    for part in range(3):
        value, g = vg(w, x)
        total = total + g
    w = up(w, total)
"""
ONCE = 2 * 8 * 16 * 16


@pytest.mark.framework("jax")
def test_products_in_loops_of_jax_count_as_often_as_these_run(tmp_path):
    lines = dict(line.split(" ", 1) for line in printed(tmp_path, "jax", JAX))

    assert lines.pop("while_loop").startswith("how often a loop")
    # Beyond the first round: of six layers, of three times six, and of forward, weights and inputs.
    counts = {"scanned": 5, "nested": 17, "unrolled": 0, "while_without": 0, "gradient": 15}
    assert {name: int(count) for name, count in lines.items()} == {name: n * ONCE for name, n in counts.items()}
    (line,) = recorded(tmp_path)["flops"]
    assert 3 * 18 * ONCE <= line["forward"] < 1.3 * 3 * 18 * ONCE  # of all calls of a step, three of which add up
