"""Loops of several `tf.function`s, and Keras' own: which calls are a step, its micro-steps, its update or none."""

import pytest
from alone_and_attached import record_of
from tensorflow_samples import SAMPLES

pytestmark = pytest.mark.framework("tensorflow")
BEGIN = (
    SAMPLES
    + """
def made(steps=None):
    optimizer = tf.keras.optimizers.Adam(0.01, gradient_accumulation_steps=steps)
    return tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)]), optimizer

net, optimizer = made()
weights = net.trainable_variables
optimizer.build(weights)

def gradients(x, y):
    with tf.GradientTape() as tape:
        loss = error(y, net(x, training=True))
    return tape.gradient(loss, weights)

def generated():
    for index in range(12):
        yield samples[0][index * 8 : index * 8 + 8], samples[1][index * 8 : index * 8 + 8]

def unsized():
    signature = tf.TensorSpec((None, 16)), tf.TensorSpec((None,), tf.int64)
    return tf.data.Dataset.from_generator(generated, output_signature=signature)

class Evaluates(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(*samples, batch_size=8, verbose=0)
        self.model.predict(samples[0], verbose=0)
"""
)
IN_GRAPH = """
sums = [tf.Variable(tf.zeros_like(each), trainable=False) for each in weights]
compute = tf.function(lambda x, y: [one.assign_add(other) for one, other in zip(sums, gradients(x, y))] and None)
def used():
    optimizer.apply_gradients(zip(sums, weights))
    [each.assign(tf.zeros_like(each)) for each in sums]
"""
BY_HAND = """
for epoch in range(2):
    for index, (x, y) in enumerate(batches):
        compute(x, y)
        if index % 4 == 3: apply()
    for x, y in batches.take(2): evaluate(x)
"""
RETURNED = """
compute, sums = tf.function(gradients), None
for epoch in range(2):
    for index, (x, y) in enumerate(batches):
        own = compute(x, y)
        sums = own if sums is None else [one + other for one, other in zip(sums, own)]
        if index % 4 == 3:
            optimizer.apply_gradients(zip(sums, weights))
            sums = None
"""
FIT = "net.compile(optimizer, error)\nnet.fit({}, epochs=4, verbose=0{})\n"
LOOPS = {
    "sums and update in graphs": (
        IN_GRAPH + "apply, evaluate = tf.function(used), tf.function(lambda x: net(x))" + BY_HAND,
        6,
        4,
    ),
    "sums in a graph, update outside": (IN_GRAPH + "apply, evaluate = used, net" + BY_HAND, 6, 4),
    "gradients that a graph returns": (RETURNED, 6, 4),
    "whole steps and a mean of weights": (
        """
copy, _ = made()
step = tf.function(lambda x, y: optimizer.apply_gradients(zip(gradients(x, y), weights)))
mean = tf.function(lambda: [a.assign((a + b) / 2) for a, b in zip(copy.trainable_variables, weights)] and None)
for x, y in batches: step(x, y); mean()
""",
        12,
        1,
    ),
    "fit over a dataset of unknown size": (FIT.format("unsized()", ""), 48, 1),
    "fit with a callback that evaluates": (
        FIT.format("*samples", ", batch_size=8, callbacks=[Evaluates()]"),
        48,
        1,
    ),
    "fit on two replicas": (
        """
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope(): net, optimizer = made()
"""
        + FIT.format("batches", ", validation_data=batches"),
        48,
        1,
    ),
}
END = "\nprint(*(f'{float(tf.reduce_sum(each)):.9f}' for each in net.trainable_variables))\n"


@pytest.mark.parametrize("name", LOOPS)
def test_a_step_has_the_micro_steps_of_its_update(tmp_path, name):
    loop, steps, micro_steps = LOOPS[name]
    lines = record_of(tmp_path, "tensorflow", BEGIN + loop + END)
    made = [line["micro_steps"] for line in lines if line["kind"] == "step"]
    assert made == [micro_steps] * steps


def test_evaluations_between_epochs_are_apart_where_a_call_finds_no_batch(tmp_path):
    lines = record_of(tmp_path, "tensorflow", BEGIN + FIT.format("unsized()", ", validation_data=batches") + END)
    apart = [line["number"] for line in lines if line["kind"] == "step" and "apart" in line]
    assert apart == [12, 24, 36]


DISTRIBUTED = """
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    net, optimizer = made()
    optimizer.build(net.trainable_variables)
weights = net.trainable_variables
read = SHARED
error = lambda y, found: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, found))

def learn(x, y):
    optimizer.apply_gradients(zip(gradients(x, y), weights))
train, evaluate = (tf.function(lambda x, y, of=each: strategy.run(of, (x, y))) for each in (learn, lambda x, y: net(x)))
for _ in range(3):
    for x, y in read: train(x, y)
    for x, y in read: evaluate(x, y)
"""
SHARED = {
    "a dataset": "strategy.experimental_distribute_dataset(batches)",
    "a function": "strategy.distribute_datasets_from_function(lambda context: batches)",
}


@pytest.mark.parametrize("name", SHARED)
def test_the_making_of_a_distributed_iterator_belongs_to_who_reads_from_it(tmp_path, name):
    lines = record_of(tmp_path, "tensorflow", BEGIN + DISTRIBUTED.replace("SHARED", SHARED[name]) + END)
    steps = [line for line in lines if line["kind"] == "step"]
    own = [line["number"] for line in steps if "loader_start" in line["regions"]]
    apart = [line["number"] for line in steps if "loader_start" in line.get("apart", {"regions": {}})["regions"]]
    count = len(steps) // 3
    assert own[-2:] == [count, 2 * count]
    assert apart == [count - 1, 2 * count - 1]


WITHOUT_EVALUATION = {
    "fit over arrays": FIT.format("*samples", ", batch_size=8"),
    "fit over a dataset": FIT.format("batches", ""),
    "fit that saves behind each epoch": FIT.format(
        "*samples", ", batch_size=8, callbacks=[tf.keras.callbacks.ModelCheckpoint('net.keras')]"
    ),
    "a function that takes the iterator of an epoch": """
@tf.function
def train(taken):
    x, y = next(taken)
    optimizer.apply_gradients(zip(gradients(x, y), weights))
for epoch in range(4):
    taken = iter(batches)
    for _ in range(12): train(taken)
""",
}


@pytest.mark.parametrize("name", WITHOUT_EVALUATION)
def test_the_beginning_of_an_epoch_is_no_evaluation(tmp_path, name):
    lines = record_of(tmp_path, "tensorflow", BEGIN + WITHOUT_EVALUATION[name] + END)
    assert ["apart" in line for line in lines if line["kind"] == "step"] == [False] * 48


NOTES = {
    "several executions": (
        "net.compile(optimizer, error, steps_per_execution=4)\nnet.fit(batches, verbose=0)",
        "in a loop",
    ),
    "a loop of the script's": (
        """
@tf.function
def train(batches):
    for _ in tf.range(4):
        optimizer.apply_gradients(zip(gradients(*next(batches)), weights))
taken = iter(batches.repeat())
for _ in range(4): train(taken)
""",
        "in a loop",
    ),
    "over a dataset": (
        """
@tf.function
def train(batches):
    for x, y in batches:
        optimizer.apply_gradients(zip(gradients(x, y), weights))
for _ in range(4): train(batches)
""",
        "in a loop",
    ),
    "unrolled": (
        """
@tf.function
def train(batches):
    for _ in range(3):
        optimizer.apply_gradients(zip(gradients(*next(batches)), weights))
taken = iter(batches.repeat())
for _ in range(4): train(taken)
""",
        "3 times",
    ),
    "gathered": ("net, optimizer = made(4)\nnet.compile(optimizer, error)\nnet.fit(batches, verbose=0)", "gathers"),
}


@pytest.mark.parametrize("name", NOTES)
def test_it_is_said_where_a_call_may_be_several_steps_or_a_part_of_one(tmp_path, name):
    loop, said = NOTES[name]
    lines = record_of(tmp_path, "tensorflow", BEGIN + loop + END)
    (note,) = [line["text"] for line in lines if line["kind"] == "note"]
    assert said in note


def test_functions_that_take_turns_are_told_apart_by_what_they_update(tmp_path):
    loop = """
critic, its_optimizer = made()
its_optimizer.build(critic.trainable_variables)
def trained(network, optimizer):
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = error(y, network(x, training=True))
        own = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
    return step
one, other = trained(critic, its_optimizer), trained(net, optimizer)
for index, (x, y) in enumerate(batches):
    one(x, y)
    if index % 3 == 2: other(x, y)
"""
    lines = record_of(tmp_path, "tensorflow", BEGIN + loop + END)
    made = [line["optimizers"] for line in lines if line["kind"] == "step"]
    assert made == [[0], [0], [0, 1]] * 4
