"""JAX scripts whose state is one array or a few numbers: what makes their step is the gradient in its program."""

import json
import os
import subprocess

import pytest
from alone_and_attached import record_of, records_of
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook

pytestmark = pytest.mark.framework("jax")
STEPS = 12
SCRIPT = """
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
STATE

def loss(w, x, y):
    return jnp.mean((PREDICT - y) ** 2)

@jax.jit
def step(w, x, y):
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient), value

evaluate = jax.jit(loss)
scale = jax.jit(lambda x: x / 2)
for i in range(12):
    x = random.normal(size=(16, 32)).astype("f4")
    x = scale(x)
    y = random.normal(size=16).astype("f4")
    w, value = step(w, x, y)
    if i == 5:
        evaluate(w, x, y)
print(f"{value:.9f}")
"""
STATES = {
    "one vector": ("w = jnp.zeros(32)", "x @ w"),
    "two arrays": ("w = (jnp.ones((32, 4)), jnp.ones(4))", "jnp.tanh(x @ w[0]) @ w[1]"),
    "two numbers": ("w = (jnp.float32(0), jnp.float32(0))", "x[:, 0] * w[0] + w[1]"),
    "steps of a scan": (
        "w = jnp.zeros(32)",
        "jax.lax.scan(lambda carry, row: (carry, row @ w), 0.0, x)[1]",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_every_call_with_a_gradient_is_a_step_and_its_loss_that_of_the_script_alone(tmp_path, name):
    state, predict = STATES[name]
    lines = record_of(tmp_path, "jax", SCRIPT.replace("STATE", state).replace("PREDICT", predict))
    assert len([line for line in lines if line["kind"] == "step"]) == STEPS
    roles = {line["name"]: line["role"] for line in lines if line["kind"] == "function"}
    assert (roles["step"], roles["loss"]) == ("step", "evaluation")


WITH_MOMENTS = """
import jax, jax.numpy as jnp

def loss(w, x):
    for layer in w:
        x = jnp.tanh(x @ layer)
    return jnp.mean(x ** 2)

@jax.jit
def step(state, x):
    gradient = jax.grad(loss)(state[0], x)
    moments = [jax.tree.map(lambda a, b: 0.9 * a + b, each, gradient) for each in state[1:]]
    return [jax.tree.map(lambda a, b: a - 0.01 * b, state[0], moments[-1]), *moments]

class net:
    parameters = staticmethod(lambda: jax.tree.leaves(state))

evaluate, helper = jax.jit(loss), jax.jit(lambda x: x / 2)
shapes, moments = SHAPES
state = [[jnp.ones(each) / 8 for each in shapes] for _ in range(moments + 1)]
x = jnp.ones((4, 8))
for _ in range(4):
    state = step(state, helper(x))
    evaluate(state[0], x)
"""
SHAPES = {
    "one weight and two moments": [(8, 8)],
    "three weights and two moments": [(8, 6), (6, 5), (5, 3)],
    "four layers alike and two moments": [(8, 8)] * 4,
    "three weights, two moments and a mean": [(8, 6), (6, 5), (5, 3)],
}


@pytest.fixture(scope="module")
def with_moments(tmp_path_factory):
    scripts = {
        name: WITH_MOMENTS.replace("SHAPES", f"({shapes}, {3 if 'mean' in name else 2})")
        for name, shapes in SHAPES.items()
    }
    return records_of(tmp_path_factory.mktemp("moments"), "jax", "import jax\n", scripts)


@pytest.mark.parametrize("name", SHAPES)
def test_what_takes_the_weights_of_a_state_with_moments_is_an_evaluation(with_moments, name):
    roles = {line["name"]: line["role"] for line in with_moments[name] if line["kind"] == "function"}
    assert roles == {"step": "step", "loss": "evaluation", "<lambda>": "helper"}


KINDS = """
import functools
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
X, Y = random.normal(size=(8, 16, 32)).astype("f4"), random.normal(size=(8, 16)).astype("f4")

def loss(w, x, y):
    return jnp.mean((x @ w - y) ** 2)

def deep(w, x, y):
    return jnp.mean(functools.reduce(lambda x, layer: jnp.tanh(x @ layer), w, x))

def slope(w, x, y):
    return jnp.mean((x[:, 0] * w - y) ** 2)

def descend(loss, w, x, y):
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient), value

def epoch(w, x, y):
    return jax.lax.scan(lambda w, batch: descend(loss, w, *batch), w, (X, Y))

def loop(w, x, y):
    return jax.lax.fori_loop(0, 8, lambda i, w: descend(loss, w, X[0], Y[0])[0], w), jnp.sum(w)

def one(w, x, y):
    return descend(slope, w, x, y)

def checkpointed(w, x, y):
    return descend(jax.checkpoint(loss), w, x, y)

def models(w, x, y):
    return jax.vmap(lambda w: descend(loss, w, x, y))(w)

def given(w, x, y):
    return descend(deep, w, x, y)

def mapped(w, x, y):
    return jax.tree.map(lambda a: jax.lax.pmean(a, "i"), descend(deep, w, x, y))

def averaged(w, x, y):
    return jax.tree.map(lambda a: jax.lax.pmean(a, "i"), descend(loss, w, x, y))

def forward_mode(w, x, y):
    return w - 0.01 * jax.jacfwd(loss)(w, x, y), loss(w, x, y)

def directional(w, x, y):
    value, change = jax.jvp(lambda w: loss(w, x, y), (w,), (jnp.ones(32),))
    return w - 0.01 * change, value

def linearized(w, x, y):
    value, change = jax.linearize(lambda w: loss(w, x, y), w)
    return w - 0.01 * jax.vmap(change)(jnp.eye(32)), value

def ahead(w, x, y):
    return descend(loss, w, x, y)

flat, layers = jnp.zeros(32), [jnp.eye(32) / 2] * 5
STATES = {epoch: flat, loop: flat, checkpointed: flat, models: jnp.zeros((4, 32)), one: jnp.zeros(1), given: layers}
STATES |= dict.fromkeys((forward_mode, directional, linearized, ahead), flat)
for function, w in STATES.items():
    step = jax.jit(function, donate_argnums=0 if function is given else ())
    w = jax.tree.map(jnp.array, w)
    step = step.lower(w, X[0], Y[0]).compile() if function is ahead else step
    for i in range(4):
        w, value = step(w, X[i], Y[i])
    print(function.__name__, [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves((w, value))])
jax.jit(deep).lower(layers, X[0], Y[0]).compile()(layers, X[0], Y[0])
for function, w in {mapped: layers, averaged: flat}.items():
    step, w = jax.pmap(function, axis_name="i"), jax.tree.map(lambda a: a[None], w)
    for i in range(4):
        w, value = step(w, X[i][None], Y[i][None])
    print(function.__name__, [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves((w, value))])
"""
"""Kinds of steps; each prints all bits of the weights that it has trained, and of its loss."""
NAMES = {"epoch", "loop", "checkpointed", "models", "one", "given", "mapped", "averaged"}
NAMES |= {"forward_mode", "directional", "linearized", "ahead"}


def test_steps_of_every_kind_are_known_and_train_the_same_bits(tmp_path):
    (tmp_path / "script.py").write_text(KINDS)
    words = [interpreter_for("jax"), "script.py"]
    variables = environment(write_hook(tmp_path / "hook"), tmp_path / "record", lines=False, flops=False)
    alone, attached = (
        subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True, check=True, timeout=120
        ).stdout
        for more in ({}, variables)
    )
    assert {line.split()[0] for line in alone.splitlines()} == NAMES
    assert attached == alone
    (path,) = (tmp_path / "record").glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    roles = {(line["name"], line["role"]) for line in lines if line["kind"] == "function"}
    # What was compiled ahead has no name; of its two objects one evaluates.
    steps = {(name, "step") for name in NAMES - {"ahead"} | {"compiled"}}
    assert roles == steps | {("compiled", "evaluation")}
    assert [line for line in lines if line["kind"] == "fault"] == []
    repeated = {
        line["text"].partition(", which")[0] for line in lines if line["kind"] == "note" and "loop" in line["text"]
    }
    assert repeated == {"a step is a call of epoch", "a step is a call of loop"}


HELPED = """
import jax, jax.numpy as jnp

layers = [jnp.eye(8) / 2] * 5
loss = lambda w, x: jnp.mean(sum(jnp.tanh(x @ layer) for layer in w))
gradient = jax.jit(jax.value_and_grad(loss))
moment = jax.jit(lambda m, g: [0.9 * a + 0.1 * b for a, b in zip(m, g)])
evaluate = jax.jit(loss)
first, second = layers, layers
for i in range(12):
    value, found = gradient(layers, jnp.ones((4, 8)))
    first, second = moment(first, found), moment(second, found)
    layers = [w - 0.01 * a / (1 + abs(b)) for w, a, b in zip(layers, first, second)]
    if i % 4 == 3:
        evaluate(layers, jnp.ones((4, 8)))
"""
ALONE = """
import jax, jax.numpy as jnp

def train(key):
    w = jax.random.normal(key, (8,))
    step = lambda w, _: (w - 0.1 * jax.grad(lambda w: jnp.sum(w ** 4))(w), None)
    return {"w": jax.lax.scan(step, w, None, 50)[0]}

jax.jit(lambda x: x * 2)(jnp.ones(4))
jax.jit(train)(jax.random.key(0))
"""


def recorded(folder, script):
    """Run a script attached; return the folder of its record."""
    (folder / "script.py").write_text(script)
    variables = environment(write_hook(folder / "hook"), folder / "record", lines=False, flops=False)
    words = [interpreter_for("jax"), "script.py"]
    subprocess.run(words, cwd=folder, env=os.environ | variables, capture_output=True, check=True, timeout=120)
    return folder / "record"


def test_a_function_that_an_optimizer_calls_for_each_moment_ends_no_step(tmp_path):
    (path,) = recorded(tmp_path, HELPED).glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    steps = [line for line in lines if line["kind"] == "step"]
    assert [step["micro_steps"] for step in steps[2:]] == [1] * 10
    assert [step["number"] for step in steps if "apart" in step] == [
        4,
        8,
    ]  # without a loader it lies in the step behind


def test_a_whole_training_in_one_call_is_named_by_the_gradient_that_it_holds(tmp_path):
    (seen,) = recorded(tmp_path, ALONE).glob("seen-*.txt")
    assert "jit_gradient=1" in seen.read_text()
