"""A workload's layers as TensorFlow variables and functions, for any strategy."""

from typing import Any, Callable

import numpy

from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.samples import TOKEN_LOSSES
from steptime.worker.weights import ORDER_IS_FREE, flat_orders, shape_channels_first, to_canonical, to_own


def probe_products(tf, kind):
    """Return the products of ``Session.probe_precision``, computed from values of a type of TensorFlow's."""
    size = probe_size("cuda" if tf.config.list_physical_devices("GPU") else "cpu")
    probe = tf.cast(PROBE, kind)
    images = tf.fill((1, size.image, size.image, size.channels), probe)
    kernel = tf.cast(identity_kernel(size).transpose(2, 3, 1, 0), kind)
    products = {
        "matrix products": tf.matmul(tf.fill((size.matrix, size.matrix), probe), tf.eye(size.matrix, dtype=kind)),
        "convolutions": tf.nn.conv2d(images, kernel, 1, "VALID"),
    }
    return {
        what: (float(tf.cast(tf.reshape(product, [-1])[0], tf.float32)), product.dtype.name)
        for what, product in products.items()
    }


class TensorFlowNetwork(object):
    """A workload whose variables are TensorFlow's and whose loss can be differentiated by its tape.

    ``variables`` are the trainable ones, in the order of the workload. They are made in the constructor, under
    whatever strategy's scope is then in force; the methods may be called inside ``tf.function``.
    """

    def __init__(self, workload, weights, precision="fp32", smoothing=0.0):
        """Make the variables.

        Args:
            workload: its JSON.
            weights: ``{name: array}`` to start from, in the workload's layout.
            precision: ``fp32``, or ``bf16`` for activations and products in bfloat16 beside float32 variables.
            smoothing: the share of each target that is spread over all classes in training.
        """
        import tensorflow

        from steptime.libraries.tensorflow.layers import LOSSES

        makers = self._makers()
        self._tf = tensorflow
        self._workload = workload
        self._orders = flat_orders(workload["layers"])
        self._type = tensorflow.bfloat16 if precision == "bf16" else tensorflow.float32
        self._loss: Callable[..., Any] = LOSSES[workload["loss"]]
        self._smoothing = smoothing
        self._variables = {}
        self._layers = []
        self._shape: Any = None
        for layer in workload["layers"]:
            own = {}
            for parameter in layer["parameters"]:
                start = to_own(layer["kind"], weights[parameter["name"]], self._orders.get(layer["inputs"][0]))
                own[parameter["role"]] = self._variable(start, parameter["name"])
                self._variables[parameter["name"]] = own[parameter["role"]]
            if layer["kind"] == "unembedding":
                own["weight"] = self._variables[layer["attributes"]["embedding"] + ".weight"]
            self._layers.append((layer, makers[layer["kind"]](layer, own)))

    def _makers(self):
        """Return what makes a layer of each kind."""
        from steptime.libraries.tensorflow.layers import LAYERS

        return LAYERS

    def _variable(self, start, name):
        """Return a trainable variable that starts with the array ``start``."""
        return self._tf.Variable(start, name=name)

    def _values(self):
        """Return the arrays that the variables hold now, in their order and in TensorFlow's layout."""
        return [variable.numpy() for variable in self.variables]

    @property
    def variables(self):
        """The trainable variables, in the order of the workload."""
        return list(self._variables.values())

    @property
    def named_variables(self):
        """``{name: variable}`` of the trainable variables, under the workload's names."""
        return dict(self._variables)

    def parameter_count(self):
        """Return how many values the variables hold."""
        return sum(int(numpy.prod(variable.shape.as_list())) for variable in self.variables)

    def get_weights(self):
        """Return ``{name: array}`` in the workload's layout."""
        values = dict(zip(self._variables, self._values()))
        weights = {}
        for layer, _ in self._layers:
            for parameter in layer["parameters"]:
                own = values[parameter["name"]]
                weights[parameter["name"]] = to_canonical(layer["kind"], own, self._orders.get(layer["inputs"][0]))
        return weights

    def output_shape(self):
        """Return the shape that TensorFlow inferred for one batch of outputs, channels first.

        The first step infers it, so that there is none before.
        """
        return shape_channels_first(self._shape)

    @property
    def statistics(self):
        """``{name: variable}`` of the running statistics of this worker."""
        return {
            name: variable for _, apply in self._layers for name, variable in getattr(apply, "statistics", {}).items()
        }

    def outputs(self, inputs):
        """Return the last layer's output, in training, as float32; samples are channels last where they are images."""
        result = self._computed(inputs, lambda apply: apply)
        self._shape = result.shape.as_list()
        return result

    def evaluate(self, inputs):
        """Return what ``outputs`` does, by running statistics and with nothing dropped."""
        return self._computed(inputs, lambda apply: getattr(apply, "evaluate", apply))

    def _computed(self, inputs, form):
        values = {"input": inputs if inputs.dtype.is_integer else self._tf.cast(inputs, self._type)}
        for layer, apply in self._layers:
            free = layer["kind"] in ORDER_IS_FREE
            sources = [values[name] if free else self._ordered(name, values[name]) for name in layer["inputs"]]
            value = form(apply)(*sources)
            # Numbers of tokens have no type that could go on: what they look up is where the computation's begins.
            values[layer["name"]] = self._tf.cast(value, self._type) if layer["kind"] == "embedding" else value
        last = self._workload["layers"][-1]["name"]
        return self._tf.cast(self._ordered(last, values[last]), self._tf.float32)

    def probe(self):
        """Return the products of ``Session.probe_precision``, computed from values of the type of activations."""
        return probe_products(self._tf, self._type)

    def loss(self, inputs, targets):
        """Return the loss of one batch; targets are class indices, and not used where the inputs are the target."""
        outputs = self.outputs(inputs)
        if self._workload["loss"] == "softmax_cross_entropy":
            flat = self._tf.reshape(outputs, (inputs.shape.as_list()[0], -1))
            return self._loss(flat, targets, self._smoothing)
        if self._workload["loss"] in TOKEN_LOSSES:
            return self._loss(outputs, targets, self._smoothing)
        return self._loss(self._flat(outputs), self._flat(inputs))

    def _flat(self, values):
        """Bring images to the workload's order of flat values, so that images and flat values can be compared."""
        if values.shape.rank == 4:  # noqa: PLR2004 - batch, height, width, channels
            values = self._tf.transpose(values, (0, 3, 1, 2))
        return self._tf.reshape(values, (values.shape.as_list()[0], -1))

    def _ordered(self, name, values):
        """Undo TensorFlow's order of flat values before a layer that cannot live with it."""
        if name not in self._orders:
            return values
        channels, height, width = self._orders[name]
        images = self._tf.reshape(values, (-1, height, width, channels))
        return self._tf.reshape(self._tf.transpose(images, (0, 3, 1, 2)), (-1, channels * height * width))
