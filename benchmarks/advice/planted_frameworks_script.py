"""Scripts of four frameworks with one cause planted: ``python planted_frameworks_script.py FRAMEWORK CAUSE``.

``clean`` has none. ``parsed`` reads each sample from JSON, ``turned`` takes it through a Fourier transform and back,
``histograms`` counts all weights' values in NumPy after each update, ``saved`` saves.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

FRAMEWORK, CAUSE = sys.argv[1:3]
STEPS, BATCH, WIDTH = 80, 64, 512
SAMPLED = ("parsed", "turned")
OUT = Path(os.environ.get("OUT", "."))
PARSED = json.dumps([number / 7 for number in range(WIDTH)])
NUMBERS = np.random.default_rng(0).standard_normal(WIDTH).astype("f")


def sample(index):
    """Return the numbers of a sample and its label."""
    numbers = NUMBERS
    if CAUSE == "parsed":
        numbers = np.array(json.loads(PARSED), "f") / WIDTH
    if CAUSE == "turned":
        for _ in range(10):
            numbers = np.fft.irfft(np.fft.rfft(numbers)).astype("f")
    return numbers, np.int32(index % 10)


def batches(count):
    """Yield so many batches, made once for all unless samples are the cause."""
    batch = None
    for _ in range(count):
        if batch is None or CAUSE in SAMPLED:
            samples = [sample(index) for index in range(BATCH)]
            batch = np.stack([numbers for numbers, _ in samples]), np.array([label for _, label in samples])
        yield batch


def count_values(weights):
    """Count the values of all weights in NumPy, where that is the cause."""
    if CAUSE == "histograms":
        for each in weights:
            np.histogram(np.asarray(each), 100)


def jax():
    """A jitted step that takes its state over."""
    import jax
    import jax.numpy as jnp

    def loss_of(weights, x, y):
        for each in weights:
            x = jax.nn.tanh(x @ each)
        return -jnp.take_along_axis(jax.nn.log_softmax(x[:, :10]), y[:, None], 1).mean()

    def step(weights, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return [each - 0.01 * gradient for each, gradient in zip(weights, gradients)], loss

    train = jax.jit(step, donate_argnums=0)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) * 0.05 for key in jax.random.split(jax.random.key(0), 4)]
    for number, (x, y) in enumerate(batches(STEPS), 1):
        weights, loss = train(weights, jnp.asarray(x), jnp.asarray(y))
        count_values(weights)
        if number % 5 == 0:
            float(loss)


def tensorflow():
    """A loop over a dataset, with a ``tf.function`` for the step."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(4)]
    model = tf.keras.Sequential([tf.keras.layers.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.Adam()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    signature = (tf.TensorSpec((BATCH, WIDTH)), tf.TensorSpec((BATCH,), tf.int64))
    dataset = tf.data.Dataset.from_generator(lambda: batches(STEPS), output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    if CAUSE not in SAMPLED:
        dataset = tf.data.Dataset.from_tensors(next(batches(1))).repeat(STEPS)
    for x, y in dataset.with_options(options):
        train(x, y)
        count_values([each.numpy() for each in model.trainable_variables] if CAUSE == "histograms" else ())


def chainer():
    """A loop of one's own over an iterator."""
    import chainer
    from chainer import functions, links

    class Samples(chainer.dataset.DatasetMixin):
        def __len__(self):
            return STEPS * BATCH

        def get_example(self, index):
            return sample(index)

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.first, self.second = links.Linear(WIDTH, WIDTH), links.Linear(WIDTH, 10)

        def forward(self, x):
            return self.second(functions.relu(self.first(x)))

    model, optimizer = links.Classifier(Net()), chainer.optimizers.Adam()
    optimizer.setup(model)
    loader = chainer.iterators.SerialIterator(Samples(), BATCH, repeat=False, shuffle=False)
    for samples in loader:
        x, y = chainer.dataset.concat_examples(samples)
        model.cleargrads()
        model(x, y).backward()
        optimizer.update()
        count_values([each.array for each in model.params()])
        if CAUSE == "saved":
            chainer.serializers.save_npz(str(OUT / "net.npz"), model)


def mxnet():
    """A gluon loop, over a loader without processes where samples are the cause."""
    import mxnet as mx
    from mxnet import autograd, gluon

    class Samples(gluon.data.Dataset):
        def __len__(self):
            return STEPS * BATCH

        def __getitem__(self, index):
            return sample(index)

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(WIDTH, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer, loss_of = gluon.Trainer(net.collect_params(), "adam"), gluon.loss.SoftmaxCrossEntropyLoss()
    made = [[mx.nd.array(each) for each in batch] for batch in batches(1)] * STEPS
    for step, (x, y) in enumerate(gluon.data.DataLoader(Samples(), BATCH) if CAUSE in SAMPLED else made, 1):
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)
        if CAUSE == "histograms":
            count_values([each.data().asnumpy() for each in net.collect_params().values()])
        if CAUSE == "saved":
            net.save_parameters(str(OUT / "net.params"))
        if step % 5 == 0:
            loss.asnumpy()


if __name__ == "__main__":
    globals()[FRAMEWORK]()
