"""JAX scripts of several jitted functions: whose calls are one step, and what of them is none."""

import pytest
from alone_and_attached import record_of

pytestmark = pytest.mark.framework("jax")
ROUNDS = 12
BEGIN = """
import sys
from collections import namedtuple
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
def network():
    sizes = (16, 16), (16,), (16, 16), (16,)
    return [jnp.array(random.normal(size=each).astype("f4") / 4) for each in sizes]

def passed(w, x):
    return jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]

def moved(w, gradient):
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient)

def made():
    return jax.jit(lambda w, x: moved(w, jax.grad(lambda w: jnp.mean(passed(w, x) ** 2))(w)))

one, other, third = made(), made(), made()
average = jax.jit(lambda a, b: jax.tree.map(lambda p, q: p / 2 + q / 2, a, b))
a, b, c, mean = network(), network(), network(), network()
batch = lambda: random.normal(size=(8, 16)).astype("f4")
"""
END = """
print(*(f"{float(each.sum()):.9f}" for each in a))
"""
LOOPS = {
    "three and one": ("for _ in range(3): a = one(a, batch())\n    b = other(b, batch())", 4),
    "one and two": ("b = other(b, batch())\n    for _ in range(2): a = one(a, batch())", 3),
    "two, one and one": ("a = one(one(a, batch()), batch()); b = other(b, batch()); c = third(c, batch())", 4),
    "with a mean of weights": ("a = one(one(a, batch()), batch()); b = other(b, batch()); mean = average(mean, b)", 3),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_round_of_functions_is_one_step_once_two_were_alike(tmp_path, name):
    body, updates = LOOPS[name]
    lines = record_of(tmp_path, "jax", f"{BEGIN}for _ in range({ROUNDS}):\n    {body}\n{END}")
    made = [line["optimizers"] for line in lines if line["kind"] == "step"]
    assert sum(map(len, made)) == ROUNDS * updates
    assert {len(each) for each in made[-ROUNDS // 2 : -1]} == {updates}


def test_the_mean_of_weights_is_no_micro_step_of_the_first_step(tmp_path):
    script = f"{BEGIN}for _ in range(8): a = one(a, batch()); mean = average(mean, a)\n{END}"
    lines = record_of(tmp_path, "jax", script)
    assert {line["micro_steps"] for line in lines if line["kind"] == "step"} == {1}


def test_a_function_of_a_library_without_a_gradient_is_neither_a_step_nor_an_evaluation(tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "moments.py").write_text(
        "import jax\nscaled = jax.jit(lambda gradient: jax.tree.map(lambda each: each / 2, gradient))\n"
    )
    script = f"""{BEGIN}
sys.path.insert(0, "site-packages")
import moments
compute = jax.grad(lambda w, x: jnp.mean(passed(w, x) ** 2))
for _ in range(5): a = moved(a, moments.scaled(moments.scaled(compute(a, batch()))))
compute = jax.jit(compute)
for _ in range(8): a = moved(a, moments.scaled(moments.scaled(compute(a, batch()))))
{END}"""
    lines = record_of(tmp_path, "jax", script)
    assert len([line for line in lines if line["kind"] == "step"]) == 8
    assert "evaluation" not in {line["role"] for line in lines if line["kind"] == "function"}


NOTES = {
    "gathered gradients": (
        "Kept = namedtuple('MultiStepsState', 'count')",
        "(lambda w, state, x: (moved(w, jax.grad(lambda w: jnp.mean(passed(w, x) ** 2))(w)), state))",
        "optax.MultiSteps gathers the gradients of several for one update",
    ),
    "updates that may be left out": (
        "Kept = namedtuple('ApplyIfFiniteState', 'count')",
        "(lambda w, state, x: (moved(w, jax.grad(lambda w: jnp.mean(passed(w, x) ** 2))(w)), state))",
        "optax.apply_if_finite may leave its update out",
    ),
    "no gradient": (
        "Kept = lambda count: count",
        "(lambda w, state, x: ([each * 0.9 for each in w], state))",
        "no gradient was seen in it",
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_it_is_said_what_a_step_is_not(tmp_path, name):
    first, function, said = NOTES[name]
    loop = f"{first}\nstep, state = jax.jit({function}), Kept(jnp.zeros(3))"
    script = f"{BEGIN}{loop}\nfor _ in range(6): a, state = step(a, state, batch())\n{END}"
    lines = record_of(tmp_path, "jax", script)
    (note,) = [line["text"] for line in lines if line["kind"] == "note"]
    assert said in note


TRAINED = """
import functools
def trained(w, x):
    return moved(w, jax.grad(lambda w: jnp.mean(passed(w, x) ** 2))(w))
step, key = jax.jit(trained), jax.random.key(0)
"""
ANEW = {
    "a function": "a = jax.jit(trained)(a, batch())",
    "a function with another option": "a = jax.jit(trained, keep_unused=True)(a, batch())",
    "a function with its weights taken over": "a = jax.jit(trained, donate_argnums=0)(a, batch())",
    "a helper beside the step": "key = jax.jit(jax.random.fold_in)(key, 1); a = step(a, batch())",
}


@pytest.mark.parametrize("name", ANEW)
def test_what_is_jitted_anew_in_each_turn_is_compiled_in_the_first_alone(tmp_path, name):
    lines = record_of(tmp_path, "jax", f"{BEGIN}{TRAINED}\nfor _ in range({ROUNDS}): {ANEW[name]}\n{END}")
    steps = [line for line in lines if line["kind"] == "step"]
    assert ["compile" in line["regions"] for line in steps] == [True] + [False] * (ROUNDS - 1)


MADE_ANEW = {"a lambda": "lambda w, x: trained(w, x)", "a partial": "functools.partial(trained)"}


@pytest.mark.parametrize("name", MADE_ANEW)
def test_a_function_that_is_made_anew_in_each_turn_is_compiled_in_each(tmp_path, name):
    loop = f"for _ in range({ROUNDS}): a = jax.jit({MADE_ANEW[name]})(a, batch())"
    lines = record_of(tmp_path, "jax", f"{BEGIN}{TRAINED}\n{loop}\n{END}")
    assert ["compile" in line["regions"] for line in lines if line["kind"] == "step"] == [True] * ROUNDS
