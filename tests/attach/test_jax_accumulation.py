"""JAX scripts that add gradients up by hand: a step is an update, and the calls for gradients are its micro-steps."""

import pytest
from alone_and_attached import record_of

pytestmark = pytest.mark.framework("jax")
STEPS, PASSES = 10, 4
SCRIPT = """
import jax, jax.numpy as jnp, numpy as np

random = np.random.default_rng(0)
def drawn(*shape):
    return random.normal(size=shape).astype("f4")

w = {"a": jnp.array(drawn(32, 64) / 6), "b": jnp.zeros(64), "c": jnp.array(drawn(64, 4) / 8), "d": jnp.zeros(4)}
def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"] - y) ** 2)

added = lambda a, b: jax.tree.map(jnp.add, a, b)
updated = lambda w, g: jax.tree.map(lambda a, b: a - 0.01 * b / 4, w, g)
GRADIENT
for _ in range(10):
    sums = None
    for _ in range(4):
        value, gradient = compute(w, drawn(16, 32), drawn(16, 4))
        sums = gradient if sums is None else added(sums, gradient)
    w = updated(w, sums)
print(f"{value:.9f}")
"""
GRADIENTS = {
    "update without jit": "compute = jax.jit(jax.value_and_grad(loss))",
    "all jitted": "compute, added, updated = jax.jit(jax.value_and_grad(loss)), jax.jit(added), jax.jit(updated)",
    "update that takes its arguments over": """
compute, updated = jax.jit(jax.value_and_grad(loss)), jax.jit(updated, donate_argnums=0)""",
    "compiled ahead": """
compute = jax.jit(jax.value_and_grad(loss)).lower(w, drawn(16, 32), drawn(16, 4)).compile()""",
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_the_same_weights_are_micro_steps_of_one_update(tmp_path, name):
    lines = record_of(tmp_path, "jax", SCRIPT.replace("GRADIENT", GRADIENTS[name]))
    steps = [line["micro_steps"] for line in lines if line["kind"] == "step"]
    assert len(steps) == STEPS
    assert set(steps[1:]) == {PASSES}
