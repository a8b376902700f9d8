"""What TensorFlow and Keras save is a checkpoint, whichever interface writes it, and what asks only is none."""

import pytest
from alone_and_attached import record_of
from tensorflow_samples import SAMPLES

pytestmark = pytest.mark.framework("tensorflow")
BEGIN = (
    SAMPLES
    + """
net = tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)])
optimizer = tf.keras.optimizers.Adam(0.01)
optimizer.build(net.trainable_variables)
kept = tf.train.Checkpoint(net=net)

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = error(y, net(x, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))

def loop(save):
    for index, (x, y) in enumerate(batches):
        step(x, y)
        if index == 5: save()
"""
)
SAVES = {
    "a checkpoint": "loop(lambda: kept.save('kept/net'))",
    "a manager of checkpoints": "manager = tf.train.CheckpointManager(kept, 'kept', 2)\nloop(manager.save)",
    "weights of Keras": "loop(lambda: net.save_weights('net.weights.h5'))",
    "a model of Keras": "loop(lambda: net.save('net.keras'))",
    "a SavedModel": "loop(lambda: tf.saved_model.save(tf.Module(), 'saved'))",
}
END = "\nprint(*(f'{float(tf.reduce_sum(each)):.9f}' for each in net.trainable_variables))\n"


def saving_steps(lines):
    parts = [
        (line["number"], {**line["regions"], **line.get("apart", line)["regions"]})
        for line in lines
        if line["kind"] == "step"
    ]
    return [number for number, regions in parts if "save" in regions]


@pytest.mark.parametrize("name", SAVES)
def test_what_is_saved_behind_a_step_is_its_checkpoint(tmp_path, name):
    assert saving_steps(record_of(tmp_path, "tensorflow", BEGIN + SAVES[name] + END)) == [5]


def test_a_callback_that_saves_behind_each_epoch_is_a_checkpoint_of_the_next_step(tmp_path):
    fit = """
saves = tf.keras.callbacks.ModelCheckpoint("net.keras")
net.compile(optimizer, error)
net.fit(*samples, batch_size=8, epochs=3, verbose=0, callbacks=[saves])
"""
    assert saving_steps(record_of(tmp_path, "tensorflow", BEGIN + fit + END)) == [12, 24]


def test_a_manager_that_has_nothing_to_save_yet_makes_no_checkpoint(tmp_path):
    often = """
count = tf.Variable(0, dtype=tf.int64)
manager = tf.train.CheckpointManager(kept, "kept", 2, step_counter=count, checkpoint_interval=6)
for x, y in batches:
    step(x, y)
    count.assign_add(1)
    manager.save(check_interval=True)
"""
    assert saving_steps(record_of(tmp_path, "tensorflow", BEGIN + often + END)) == [0, 6]
