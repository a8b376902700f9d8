"""A user's own module in Keras, and the one process that its equivalence check compares workers with.

``build()`` returns a ``keras.Model``. In the check it is built anew by a dtype policy of double precision, with the
weights that it gives itself in single.
"""

import itertools
from typing import Any, Dict

import numpy
import tensorflow as tf
from tensorflow import keras

from steptime.libraries.tensorflow.network import probe_products
from steptime.worker.own_module import OwnWorkload, changed, flop_per_sample, open_own_batches
from steptime.worker.own_reference import BF16, DOUBLE, SINGLE, OwnReference

_DROPOUTS = (
    keras.layers.Dropout,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.GaussianDropout,
    keras.layers.AlphaDropout,
)
_OF_CELLS = ("dropout", "recurrent_dropout")
_SEED = "seed_generator_state"
_SINGLE, _MIXED, _DOUBLE = "float32", "mixed_bfloat16", "float64"
"""Policies of Keras."""


class KerasOwnWorkload(OwnWorkload):
    """The user's model in place of a workload."""

    needed = "a keras.Model"
    arrays = "arrays; make some of it: numpy.asarray(values)"
    to_single = '.astype("float32")'

    def __init__(self, job):
        self._job = job
        self._batch = None
        self._first: Any = None
        self._number = job["seed"]
        self._open(_MIXED if job["precision"] == "bf16" else _SINGLE)
        super(KerasOwnWorkload, self).__init__(job)

    def _open(self, policy):
        self.module = None
        keras.config.set_dtype_policy(policy)
        keras.config.set_floatx(_DOUBLE if policy == _DOUBLE else _SINGLE)

    def is_module(self, value):
        return isinstance(value, keras.Model)

    def prepare(self, batch):
        """Compute a loss once where layers have no weights before."""
        self._batch = batch
        if not (self.module.built and all(each.built for each in self._layers())):
            before, number = self.random_state(), self._number
            self.seed(self._job["seed"])  # as while the model was built
            with self.of_user("the loss of %s()" % self.own["build"]):
                self.loss(self.module, changed(self, batch, tf.constant))
            self._seed_library(number)
            self.set_random_state(before)
        if not self.own["dropout"]:
            self._drop_nothing()
        if self._first is None:
            self.require_trainable({name: each.dtype for name, each in self.parameters().items()})
            self._first = list(self.weights().values())

    def rebuild(self, policy):
        """Build the model by another policy, with its first weights; ``prepare`` came before."""
        keras.utils.clear_session()  # so that names begin anew; a strategy's scope would not survive it
        self._open(policy)
        self.module = self._built(self._job)
        self.prepare(changed(self, self._batch, lambda each: as_type(each, keras.config.floatx())))
        for variable, values in zip(self.parameters().values(), self._first):
            variable.assign(values.astype(variable.dtype.name))

    def _layers(self):
        return self.module._flatten_layers(include_self=False)  # noqa: SLF001 - Keras has no public way to nested ones

    def _drop_nothing(self):
        for each in self._layers():
            if isinstance(each, _DROPOUTS):
                each.rate = 0.0
            for name in _OF_CELLS:
                if isinstance(vars(each).get(name), float):
                    setattr(each, name, 0.0)

    def seed(self, number):
        super(KerasOwnWorkload, self).seed(number)
        self._seed_library(number)

    def _seed_library(self, number):
        self._number = number
        tf.random.set_seed(number)
        for variable in self.module.non_trainable_variables if self.module is not None else ():
            if variable.path.endswith(_SEED):
                variable.assign(numpy.array([number, 0]))

    def parameters(self):
        """Return ``{name: variable}`` of what is trained; names are Keras' paths without that of the model."""
        found: Dict[str, Any] = {}
        for variable in self.module.trainable_variables:
            name = variable.path[variable.path.startswith(self.module.name + "/") and len(self.module.name) + 1 :]
            name = name.replace("/", ".")
            found[name if name not in found else "%s.%d" % (name, len(found))] = variable.value
        return found

    def weights(self):
        return {name: each.numpy() for name, each in self.parameters().items()}

    def batch_norm(self):
        return [each.name for each in self._layers() if _normalises(each) and not each.synchronized]

    def synchronised(self):
        """Whether a layer normalises over the batches of all workers."""
        return any(_normalises(each) and each.synchronized for each in self._layers())

    def default_loss(self, module, batch):
        """Return the cross entropy of ``(inputs, targets)``, whose outputs are logits, and the model's own losses."""
        inputs, targets = self.pair_of(batch)
        outputs = module(inputs, training=True)
        outputs = tf.cast(outputs, keras.config.floatx())
        sparse = len(targets.shape) < len(outputs.shape)
        of = tf.nn.sparse_softmax_cross_entropy_with_logits if sparse else tf.nn.softmax_cross_entropy_with_logits
        loss = tf.reduce_mean(of(labels=targets, logits=outputs))
        return tf.add_n([loss] + list(module.losses)) if module.losses else loss


def _normalises(layer):
    return isinstance(layer, keras.layers.BatchNormalization)


def as_type(array, name):
    """Return an array as numpy's, and where it is of real numbers of the type of that name."""
    values = numpy.asarray(array)
    return values.astype(name) if values.dtype.kind == "f" else values


class KerasNetwork(object):
    """The model as ``TensorFlowTraining`` takes a network; a batch is its inputs, and no targets are beside it.

    ``batches``, ``facts``
        Of this worker, where ``open_own_network`` made it.
    """

    statistics: Dict[str, Any] = {}
    """What training goes on from; without a training to its end, nothing."""

    def __init__(self, built):
        self._built = built
        self.named_variables = built.parameters()
        self.variables = list(self.named_variables.values())
        self.batches = None
        self.facts = {}

    def loss(self, batch, _targets):
        """Return the loss of one batch."""
        with self._built.of_user("the loss of %s()" % self._built.own["build"]):
            loss = self._built.loss(self._built.module, batch)
        self._built.require_number(loss)
        return tf.reshape(loss, [])

    def parameter_count(self):
        """Return how many values the variables hold."""
        return sum(each.shape.num_elements() for each in self.variables)

    def get_weights(self):
        """Return ``{name: array}``."""
        return self._built.weights()

    def output_shape(self):
        """Return the shape of outputs so far as it is known: the samples."""
        return (None,)

    def probe(self):
        """Return the products of ``Session.probe_precision``."""
        return probe_products(tf, tf.as_dtype(keras.config.dtype_policy().compute_dtype))

    def evaluate(self, _):
        """Raise NotImplementedError: a module comes without a validation set."""
        raise NotImplementedError


class KerasBatches(object):
    """The batches of the user's loader, drawn when they are asked for and copied to the device in force."""

    threads = 0
    ahead = 0

    def __init__(self, built, drawn):
        self._built = built
        self._drawn = drawn

    def _placed(self, batch):
        return changed(self._built, batch, tf.constant), ()

    def feed(self, step):
        """Return a function without arguments that runs ``step``, which is compiled, on the next batch."""
        return self._feed(step, self._drawn)

    def _feed(self, step, drawn):
        compiled = tf.function(step, autograph=False)
        return lambda: compiled(*self._placed(next(drawn)))

    def copies(self):
        """Return what ``feed`` is, for one batch that stays in the host's memory."""
        held = next(self._drawn)
        return lambda step: self._feed(step, itertools.repeat(held))

    def taker(self):
        """Return a function that takes the next batch and returns it."""
        return lambda: self._placed(next(self._drawn))


def open_own_network(job, context):
    """Return the ``KerasNetwork`` of this worker, with its batches and facts."""
    built = KerasOwnWorkload(job)
    first, drawn = open_own_batches(job, context, built)
    network = KerasNetwork(built)
    network.facts = dict(built.facts(), flop_per_sample=flop_per_sample(job, context, built, first))
    network.batches = KerasBatches(built, drawn)
    return network


class KerasOwnReference(OwnReference):
    """The model in plain steps of one process."""

    def __init__(self, job, context, training):
        """Take the class ``TensorFlowTraining``."""
        self._settings = job["optimizer"]
        self._rate = self._settings["learning_rate"]
        self._training_of = training
        self._own: Any = KerasOwnWorkload(job)
        super(KerasOwnReference, self).__init__(job, context, self._own)

    def begin(self, bits, batch):
        if bits == DOUBLE and not self._computes_in_double(batch):
            bits = SINGLE
        if bits != DOUBLE:
            self._open(_MIXED if bits == BF16 else _SINGLE)
        self.synchronised = self._own.synchronised()
        self._gradients = None
        return bits

    def _open(self, policy):
        self._own.rebuild(policy)
        self._training = self._training_of(KerasNetwork(self._own), self._settings)
        self._differentiate = tf.function(self._training.backward, autograph=False)

    def _computes_in_double(self, batch):
        """Say whether all that the model computes is in double precision by that policy."""
        try:
            self._open(_DOUBLE)
            made = self._differentiate.get_concrete_function(*self._placed(batch))
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            return False
        computed = [each for each in made.graph.get_operations() if each.type != "Const"]
        return not any(tensor.dtype == tf.float32 for each in computed for tensor in each.outputs)

    def _placed(self, batch):
        kind = keras.config.floatx()
        return changed(self._own, batch, lambda each: tf.constant(as_type(each, kind))), ()

    def values(self):
        return self._own.weights()

    def put(self, values):
        for name, variable in self._own.parameters().items():
            variable.assign(values[name])

    def backward(self, batch, share):
        loss, gradients = self._differentiate(*self._placed(batch))
        own = [share * tf.convert_to_tensor(each) for each in gradients]
        before = self._gradients
        self._gradients = own if before is None else [one + each for one, each in zip(before, own)]
        return loss

    def update(self):
        self._training.update(self._gradients, self._rate)
        self._gradients = None

    def set_learning_rate(self, rate):
        self._rate = rate

    def library_facts(self):
        device = "GPU" if tf.config.get_visible_devices("GPU") else "cpu"
        return {"framework_version": tf.__version__, "device": device}
