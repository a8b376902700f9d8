"""JAX scripts fed by the real grain: its iterators are requests to a loader, however deep and in which threads."""

import importlib.util
from pathlib import Path

import pytest
from alone_and_attached import records_of

FOUND = importlib.util.find_spec("grain")
pytestmark = [
    pytest.mark.framework("jax"),
    pytest.mark.skipif(FOUND is None, reason="missing grain: pip install grain"),
]
STEPS, BATCH = 40, 16
BEGIN = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
sys.path.append(LIBRARY)  # behind the framework's own packages
import grain
"""
TRAIN = """
w = [jnp.ones((8, 4)) / 8, jnp.zeros(4)]
loss = lambda w, batch: jnp.mean((batch["x"] @ w[0] + w[1] - batch["y"][:, None]) ** 2)
evaluate = jax.jit(loss)

@jax.jit
def step(w, batch):
    value, gradient = jax.value_and_grad(loss)(w, batch)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient), value

class net:
    parameters = staticmethod(lambda: w)

def made(index):
    time.sleep(0.0002)
    return {"x": np.full(8, index / 320, np.float32), "y": np.float32(index % 4)}

def train(loader):
    global w
    for batch in loader:
        w, value = step(w, batch)

whole = grain.MapDataset.range(320).shuffle(seed=0).map(made)
held = grain.MapDataset.range(64).map(made).batch(32)
"""
EVALUATE = "\n    for batch in held: evaluate(w, batch)\n"
FORMS = {
    "a dataset of an index": "for _ in range(2): train(whole.batch(16))",
    "one iterated again": "read = whole.batch(16).to_iter_dataset()\nfor _ in range(2): train(read)",
    "one that reads ahead": """
read = grain.experimental.ThreadPrefetchIterDataset(whole.to_iter_dataset().batch(16), prefetch_buffer_size=2)
for _ in range(2): train(read)
""",
    "two mixed, by the iterator": """
batches = iter(grain.MapDataset.mix([whole, whole]).batch(16).to_iter_dataset())
train(next(batches) for _ in range(40))
""",
    "a loader": """
sampler = grain.samplers.IndexSampler(320, grain.sharding.NoSharding(), shuffle=True, num_epochs=2, seed=0)
train(grain.DataLoader(data_source=whole, sampler=sampler, operations=[grain.transforms.Batch(16)]))
""",
    "evaluations between": "for _ in range(2):\n    train(whole.batch(16))" + EVALUATE,
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    begin = BEGIN.replace("LIBRARY", repr(str(Path(FOUND.origin).parents[1])))
    scripts = {name: TRAIN + script for name, script in FORMS.items()}
    return records_of(tmp_path_factory.mktemp("grain"), "jax", begin, scripts)


@pytest.mark.parametrize("name", FORMS)
def test_each_step_waits_for_one_batch_of_grain(lines, name):
    steps = [line for line in lines[name] if line["kind"] == "step"]
    assert [(line["samples"], line["micro_steps"]) for line in steps] == [(BATCH, 1)] * STEPS
    assert all("input" in line["regions"] for line in steps)
    assert [line["number"] for line in steps if "apart" in line] == ([19] if "evaluations" in name else [])
