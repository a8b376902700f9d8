"""Training by JAX, Keras and TensorFlow: `python compiled.py KIND`; planted are 20 ms a batch and evaluation."""

import hashlib
import os
import sys
import time

import numpy as np
from planted_times import BATCH, EVALUATED_S, LOAD_S, SLOW_S, STEPS, WIDTH, pause, planted, rank, say, timed, world

LAYERS = 4


def batches(count, cause="load", seconds=LOAD_S):
    """Yield ``count`` random batches, each of which takes ``seconds``."""
    chance = np.random.default_rng(0)
    for _ in range(count):
        pause(cause, seconds)
        yield chance.standard_normal((BATCH, WIDTH), dtype="float32"), chance.integers(0, 10, BATCH)


def finish(loss, weights):
    """Say what was trained."""
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in weights)).hexdigest()
    say(rank, {"loss": float(loss).hex(), "weights": digest})


def jax():  # noqa: C901 - a script of its own
    """A jitted step that takes its state over, and an evaluation, in one or several processes."""
    import jax
    import jax.numpy as jnp
    import optax

    if world > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize("127.0.0.1:" + os.environ["PORT"], world, rank)

    def loss_of(weights, x, y):
        for w, b in weights[:-1]:
            x = jax.nn.relu(x @ w + b)
        x = x @ weights[-1][0] + weights[-1][1]
        return optax.softmax_cross_entropy_with_integer_labels(x[:, :10], y).mean()

    optimizer = optax.adamw(1e-3)
    keys = jax.random.split(jax.random.key(0), LAYERS)
    weights = [(jax.random.normal(key, (WIDTH, WIDTH)) * 0.05, jnp.zeros(WIDTH)) for key in keys]
    state = optimizer.init(weights)
    put = jnp.asarray
    if world > 1:
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(jax.devices()), ("workers",))
        every, own = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("workers"))
        weights, state = jax.tree.map(
            lambda value: jax.make_array_from_process_local_data(every, np.asarray(value)), (weights, state)
        )
        put = lambda value: jax.make_array_from_process_local_data(own, value)  # noqa: E731 - as such scripts do

    def step(weights, state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        changes, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state, loss

    step, evaluate = jax.jit(step, donate_argnums=(0, 1)), jax.jit(loss_of)

    def evaluated():
        for x, y in batches(10, "evaluated batch", EVALUATED_S):
            float(evaluate(weights, put(x), put(y)))

    for number, (x, y) in enumerate(batches(STEPS), 1):
        weights, state, loss = step(weights, state, put(x), put(y))
        if rank == 1:
            pause("slow", SLOW_S)
        if number % 5 == 0:
            float(loss)
        if number == STEPS // 2:
            timed("evaluation", evaluated)
    finish(loss, jax.tree.leaves(weights))


def keras():
    """`fit` with a loader in Python and validation; KERAS_BACKEND says on what."""
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    on_jax = keras.backend.backend() == "jax"
    model.compile("adam", loss, metrics=["accuracy"], jit_compile="auto" if on_jax else False)

    class Slow(keras.utils.PyDataset):
        def __init__(self, count, cause, seconds):
            super().__init__()
            self.count, self.cause, self.seconds = count, cause, seconds

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            chance = np.random.default_rng(index)
            pause(self.cause, self.seconds)
            return chance.standard_normal((BATCH, WIDTH), dtype="float32"), chance.integers(0, 10, BATCH)

    begins = []
    watch = keras.callbacks.LambdaCallback()
    watch.on_train_batch_end = lambda *_, **__: begins.append(time.monotonic())  # then `fit` makes a loader
    watch.on_test_end = lambda _=None: planted.setdefault("evaluation", []).append(time.monotonic() - begins[-1])
    history = model.fit(
        Slow(STEPS, "load", LOAD_S),
        epochs=2,
        validation_freq=[1],
        validation_data=Slow(10, "evaluated batch", EVALUATED_S),
        verbose=0,
        shuffle=False,
        callbacks=[watch],
    )
    finish(history.history["loss"][-1], model.get_weights())


def tensorflow():
    """A loop over a dataset with `tf.function` for the step and for evaluation."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.layers.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.Adam()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    seen = tf.keras.metrics.Mean()

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def test(x, y):
        seen.update_state(loss_of(y, model(x)))

    def evaluated():
        for x, y in batches(10, "evaluated batch", EVALUATED_S):
            test(x, y)

    signature = (tf.TensorSpec((BATCH, WIDTH)), tf.TensorSpec((BATCH,), tf.int64))
    dataset = tf.data.Dataset.from_generator(lambda: batches(10**6), output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # else a part of the load lies behind the step
    dataset = dataset.with_options(options)
    for number, (x, y) in enumerate(dataset, 1):
        loss = train(x, y)
        if number == STEPS // 2:
            timed("evaluation", evaluated)
        if number == STEPS:
            break
    finish(loss, model.get_weights())


def flax():
    """Flax's own jit, whose functions take and return the whole state."""
    import jax
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(LAYERS)])

        def __call__(self, x):
            for layer in self.layers:
                x = nnx.relu(layer(x))
            return x

    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adamw(1e-3), wrt=nnx.Param)

    def loss_of(net, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(net(x)[:, :10], y).mean()

    @nnx.jit
    def train(net, optimizer, x, y):
        loss, gradients = nnx.value_and_grad(loss_of)(net, x, y)
        optimizer.update(net, gradients)
        return loss

    test = nnx.jit(loss_of)

    def evaluated():
        for x, y in batches(10, "evaluated batch", EVALUATED_S):
            float(test(net, x, y))

    for number, (x, y) in enumerate(batches(STEPS), 1):
        loss = train(net, optimizer, x, y)
        if number == STEPS // 2:
            timed("evaluation", evaluated)
    finish(loss, jax.tree.leaves(nnx.state(net, nnx.Param)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
