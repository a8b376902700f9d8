"""Loops of TensorFlow outside of graphs, and over datasets that a strategy divides: their steps are on record."""

import pytest
from alone_and_attached import record_of
from tensorflow_samples import SAMPLES

pytestmark = pytest.mark.framework("tensorflow")

BEGIN = (
    SAMPLES
    + """
def made():
    return tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)]), tf.keras.optimizers.SGD(0.1)
"""
)
EAGER = """
net, optimizer = made()
for epoch in range(2):
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = error(y, net(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    for x, y in batches.take(3):
        net(x)
print(float(loss))
"""
RUN_EAGERLY = """
net, optimizer = made()
net.compile(optimizer, error, run_eagerly=True)
print(net.fit(batches, epochs=2, verbose=0).history["loss"][-1])
"""
REPLICAS = """
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    net, optimizer = made()

def replica(batch):
    with tf.GradientTape() as tape:
        loss = error(batch[1], net(batch[0]))
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    return loss

train = tf.function(lambda batch: strategy.reduce("SUM", strategy.run(replica, args=(batch,)), axis=None))
for epoch in range(2):
    for batch in strategy.experimental_distribute_dataset(batches):
        loss = train(batch)
print(float(loss))
"""


def recorded(folder, script):
    """Return the steps on the record of a script, which prints what it prints alone."""
    return [line for line in record_of(folder, "tensorflow", BEGIN + script) if line["kind"] == "step"]


@pytest.mark.parametrize(
    ("script", "regions", "apart"),
    [
        (EAGER, {"input", "forward", "backward", "update"}, [11]),
        (RUN_EAGERLY, {"forward", "backward", "update"}, []),  # Keras takes its batches below Python's iterator
    ],
    ids=["tape", "run_eagerly"],
)
def test_eager_steps_have_their_forward_backward_and_update(tmp_path, script, regions, apart):
    steps = recorded(tmp_path, script)
    assert [step["micro_steps"] for step in steps] == [1] * 24
    assert set.intersection(*(set(step["regions"]) for step in steps)) == regions
    assert [step["number"] for step in steps if "apart" in step] == apart


def test_batches_that_a_strategy_divides_are_requests_to_a_loader(tmp_path):
    steps = recorded(tmp_path, REPLICAS)
    assert [step["micro_steps"] for step in steps] == [1] * 24
    assert all("input" in step["regions"] for step in steps)
    assert {step["samples"] for step in steps} == {8}


def test_the_making_of_an_iterator_is_a_part_of_the_first_step_of_an_epoch(tmp_path):
    steps = recorded(tmp_path, EAGER)
    assert [step["number"] for step in steps if "loader_start" in step["regions"]] == [0, 12]
