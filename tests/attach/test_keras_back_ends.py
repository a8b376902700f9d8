"""Keras on JAX and on PyTorch, in Keras' own loop and in one of the script's."""

import pytest
from alone_and_attached import record_of, records_of
from launching import interpreter_for

BEGIN = """
import os, sys
os.environ["KERAS_BACKEND"] = BACK_END
sys.path.append(PACKAGES)  # behind the framework's own
import keras, numpy as np

keras.utils.set_random_seed(0)
x, y = np.random.default_rng(0).random((96, 16), np.float32), np.arange(96) % 4
error = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""


def begin_on(back_end):
    (packages,) = interpreter_for("tensorflow").parents[1].glob("lib/python*/site-packages")
    return BEGIN.replace("BACK_END", repr(back_end)).replace("PACKAGES", repr(str(packages)))


GATHERING = """
import jax
net = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=STEPS)
"""
FIT = "net.compile(optimizer, error)\nnet.fit(x, y, batch_size=8, verbose=0)"
BY_HAND = """
optimizer.build(net.trainable_variables)
loss = lambda own, x, y: error(y, net.stateless_call(own, [], x, training=True)[0])

@jax.jit
def step(own, of_optimizer, x, y):
    return optimizer.stateless_apply(of_optimizer, jax.grad(loss)(own, x, y), own)

own, of_optimizer = ([each.value for each in one] for one in (net.trainable_variables, optimizer.variables))
for index in range(0, 96, 8): own, of_optimizer = step(own, of_optimizer, x[index : index + 8], y[index : index + 8])
"""


@pytest.mark.framework("jax")
@pytest.mark.parametrize(("loop", "gathers"), [(FIT, 4), (BY_HAND, 4), (FIT, None)])
def test_an_optimizer_that_gathers_gradients_is_named(tmp_path, loop, gathers):
    lines = record_of(tmp_path, "jax", begin_on("jax") + GATHERING.replace("STEPS", str(gathers)) + loop)
    assert len([line for line in lines if line["kind"] == "step"]) == 12
    said = [line["text"] for line in lines if line["kind"] == "note"]
    assert said == ["a call of Keras' optimizer adam is a step, of which 4 gather gradients for one update"] * bool(
        gathers
    )


DENSE = "dense = lambda size: keras.layers.Dense(size, kernel_initializer='ones')\n"
MODELS = {
    "layers in a row": "net = keras.Sequential([keras.Input((16,)), dense(4)])",
    "layers of an input": """
given = keras.Input((16,))
net = keras.Model(given, dense(4)(dense(8)(given)))
""",
    "a class": """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = dense(4)

    def call(self, x):
        return self.dense(x)

net = Net()
""",
}
TRAINED = """
net.compile("sgd", error)
net.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False, validation_data=(x, y))
"""


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory):
    scripts = {name: model + TRAINED for name, model in MODELS.items()}
    return records_of(tmp_path_factory.mktemp("keras"), "pytorch", begin_on("torch") + DENSE, scripts)


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_torch_is_made_of_arrays_without_a_size_before_it_trains(on_torch, name):
    steps = [line for line in on_torch[name] if line["kind"] == "step"]
    assert [(line["micro_steps"], line["samples"]) for line in steps] == [(1, 8)] * 24
    assert all("forward" in line["regions"] for line in steps)
    assert [line["number"] for line in steps if "apart" in line] == [11]
