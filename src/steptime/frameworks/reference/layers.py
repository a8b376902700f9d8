"""Each kind of layer in plain numpy, its forward computation and its gradients, and the losses.

Arrays inside are channels first and batch *second*: ``(channels, batch, height, width)`` or ``(features, batch)``. One
matrix product then covers a whole batch, statistics of a channel lie in one row, and channels join along the first
axis; with the batch first, each of these would need a transposition.

Layers with a window are in ``windows.py``. Losses are summed in 64 bits.
"""

import abc
from typing import Any

import numpy


class ReferenceLayer(abc.ABC):
    """One layer of a workload; keeps from ``forward`` what ``backward`` needs, until ``backward`` has used it."""

    def __init__(self, description, weights, gradients, wants_input_gradient):
        """Bind the layer to its arrays.

        Args:
            description: the layer's JSON.
            weights: ``{role: array}``; read, never replaced.
            gradients: ``{role: array}`` of the same shapes; ``backward`` overwrites them.
            wants_input_gradient: False where nothing before the layer is trained; ``backward`` may then return None.
        """
        self.attributes = description["attributes"]
        self.output_shape = tuple(description["output_shape"])
        self.weights = weights
        self.gradients = gradients
        self.wants_input_gradient = wants_input_gradient
        self.saved: Any = None

    def evaluate(self, *inputs):
        """Return the output in evaluation, where nothing is kept for ``backward``; that of ``forward`` by default."""
        output = self.forward(*inputs)
        self.saved = None
        return output

    def state(self):
        """Return ``{name: array}`` of what ``evaluate`` needs and training changes, apart from weights; not copied."""
        return {}

    @abc.abstractmethod
    def forward(self, *inputs):
        """Return the output; ``inputs`` must not be changed, others read them too."""

    @abc.abstractmethod
    def backward(self, gradient):
        """Return the gradients of the inputs, in their order, from that of the output; fill ``self.gradients``.

        ``gradient`` must not be changed; it may be returned.
        """


class RoundedLayer(object):
    """A layer whose inputs, weights, outputs and gradients are rounded to bf16, and whose sums are not.

    That is what hardware for bf16 does with matrix products and convolutions.
    """

    def __init__(self, layer):
        self._layer = layer
        self._weights = layer.weights

    def forward(self, *inputs):
        self._layer.weights = {role: to_bf16(array) for role, array in self._weights.items()}
        return to_bf16(self._layer.forward(*[to_bf16(each) for each in inputs]))

    def evaluate(self, *inputs):
        return self.forward(*inputs)

    def state(self):
        return self._layer.state()

    def backward(self, gradient):
        found = self._layer.backward(to_bf16(gradient))
        for array in self._layer.gradients.values():
            array[...] = to_bf16(array)
        return [None if each is None else to_bf16(each) for each in found]


def to_bf16(array):
    """Return float32 values rounded to the nearest of 8 significant bits, ties to even."""
    bits = numpy.ascontiguousarray(array, dtype=numpy.float32).view(numpy.uint32)
    rounded = bits + numpy.uint32(0x7FFF) + ((bits >> numpy.uint32(16)) & numpy.uint32(1))
    return (rounded & numpy.uint32(0xFFFF0000)).view(numpy.float32)


class Linear(ReferenceLayer):
    """weight @ features + bias; weight (out, in); of sequences, for each token."""

    def forward(self, features):
        self.saved = features
        if features.ndim > 2:  # noqa: PLR2004 - tokens, batch, features
            output = numpy.matmul(_rows(features), self.weights["weight"].T)
            if "bias" in self.weights:
                output += self.weights["bias"]
            return output.reshape(features.shape[:2] + (-1,))
        output = numpy.matmul(self.weights["weight"], features)
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1)
        return output

    def backward(self, gradient):
        features, self.saved = self.saved, None
        if features.ndim > 2:  # noqa: PLR2004 - tokens, batch, features
            rows = _rows(gradient)
            numpy.matmul(rows.T, _rows(features), out=self.gradients["weight"])
            if "bias" in self.gradients:
                rows.sum(axis=0, out=self.gradients["bias"])
            if not self.wants_input_gradient:
                return [None]
            return [numpy.matmul(rows, self.weights["weight"]).reshape(features.shape)]
        numpy.matmul(gradient, features.T, out=self.gradients["weight"])
        if "bias" in self.gradients:
            gradient.sum(axis=1, out=self.gradients["bias"])
        if not self.wants_input_gradient:
            return [None]
        return [numpy.matmul(self.weights["weight"].T, gradient)]


def _rows(sequences):
    """Return (tokens, batch, features) as a matrix with a row for each token."""
    return sequences.reshape(-1, sequences.shape[-1])


class Flatten(ReferenceLayer):
    """Channels, height and width become features, in this order."""

    def forward(self, images):
        channels, batch = images.shape[:2]
        spatial = images.reshape(channels, batch, -1).transpose(0, 2, 1)
        self.saved = images.shape
        return numpy.ascontiguousarray(spatial).reshape(-1, batch)

    def backward(self, gradient):
        channels, batch = self.saved[:2]
        spatial = gradient.reshape(channels, -1, batch).transpose(0, 2, 1)
        return [numpy.ascontiguousarray(spatial).reshape(self.saved)]


class BatchNorm(ReferenceLayer):
    """Normalises each channel over batch and space by the batch's mean and biased variance (Ioffe, Szegedy 2015).

    Statistics are summed in 64 bits. Evaluation takes the running means of both over the batches, of which the newest
    has the weight ``momentum``; the running variance is unbiased, as in PyTorch.
    """

    def __init__(self, *arguments):
        super(BatchNorm, self).__init__(*arguments)
        channels = self.output_shape[0]
        self._mean, self._variance = numpy.zeros(channels), numpy.ones(channels)

    def state(self):
        return {"mean": self._mean, "variance": self._variance}

    def evaluate(self, values):
        rows = values.reshape(values.shape[0], -1)
        inverse = 1 / numpy.sqrt(self._variance + self.attributes["epsilon"])
        output = (rows - _column(self._mean, rows)) * _column(inverse, rows)
        output *= self.weights["weight"].reshape(-1, 1)
        output += self.weights["bias"].reshape(-1, 1)
        return output.reshape(values.shape)

    def forward(self, values):
        rows = values.reshape(values.shape[0], -1)
        mean = rows.mean(axis=1, dtype=numpy.float64)
        normalised = rows - _column(mean, rows)
        variance = numpy.square(normalised).mean(axis=1, dtype=numpy.float64)
        count, newest = rows.shape[1], self.attributes["momentum"]
        self._mean += newest * (mean - self._mean)
        self._variance += newest * (variance * (count / max(count - 1.0, 1.0)) - self._variance)
        inverse = 1 / numpy.sqrt(variance + self.attributes["epsilon"])
        normalised *= _column(inverse, rows)
        self.saved = normalised, inverse
        output = normalised * self.weights["weight"].reshape(-1, 1)
        output += self.weights["bias"].reshape(-1, 1)
        return output.reshape(values.shape)

    def backward(self, gradient):
        (normalised, inverse), self.saved = self.saved, None
        rows = gradient.reshape(gradient.shape[0], -1)
        shift = rows.sum(axis=1, dtype=numpy.float64)
        scale = (rows * normalised).sum(axis=1, dtype=numpy.float64)
        self.gradients["bias"][...] = shift
        self.gradients["weight"][...] = scale
        if not self.wants_input_gradient:
            return [None]
        count = rows.shape[1]
        result = rows - normalised * _column(scale / count, rows)
        result -= _column(shift / count, rows)
        result *= _column(self.weights["weight"] * inverse, rows)
        return [result.reshape(gradient.shape)]


class LocalResponseNorm(ReferenceLayer):
    """x / (k + alpha / size * sum of squares over ``size`` neighbouring channels) ** beta (Krizhevsky et al. 2012)."""

    def forward(self, values):
        attributes = self.attributes
        sums = self._neighbours(values * values)
        sums *= attributes["alpha"] / attributes["size"]
        sums += attributes["k"]
        factor = sums ** -attributes["beta"]
        self.saved = values, sums, factor
        return values * factor

    def backward(self, gradient):
        (values, sums, factor), self.saved = self.saved, None
        attributes = self.attributes
        result = gradient * factor
        spread = self._neighbours(result * values / sums)
        spread *= 2 * attributes["alpha"] * attributes["beta"] / attributes["size"]
        result -= values * spread
        return [result]

    def _neighbours(self, values):
        """Sum over each channel and the ``size // 2`` channels on either side of it."""
        sums = values.copy()
        for distance in range(1, self.attributes["size"] // 2 + 1):
            sums[distance:] += values[:-distance]
            sums[:-distance] += values[distance:]
        return sums


def _column(statistic, rows):
    return statistic.astype(rows.dtype).reshape(-1, 1)


class Relu(ReferenceLayer):
    """max(0, x), with the derivative 0 at 0."""

    def forward(self, values):
        self.saved = numpy.maximum(values, 0)
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (output > 0)]


class Tanh(ReferenceLayer):
    """Hyperbolic tangent."""

    def forward(self, values):
        self.saved = numpy.tanh(values)
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (1 - output * output)]


class Sigmoid(ReferenceLayer):
    """1 / (1 + exp(-x)), computed as (1 + tanh(x / 2)) / 2, which cannot overflow."""

    def forward(self, values):
        self.saved = 0.5 * (1 + numpy.tanh(0.5 * values))
        return self.saved

    def backward(self, gradient):
        output, self.saved = self.saved, None
        return [gradient * (output * (1 - output))]


class Dropout(ReferenceLayer):
    """Zeroes a share ``rate`` of the values and divides the rest by ``1 - rate``."""

    stream = numpy.random.RandomState(0)
    """Of the masks; whoever owns the layer gives it one of its own."""

    def forward(self, values):
        rate = self.attributes["rate"]
        if rate == 0:
            self.saved = None
            return values
        kept = self.stream.random_sample(values.shape) >= rate
        self.saved = kept.astype(values.dtype) / values.dtype.type(1 - rate)
        return values * self.saved

    def evaluate(self, values):
        return values

    def backward(self, gradient):
        mask, self.saved = self.saved, None
        return [gradient if mask is None else gradient * mask]


class GlobalAvgPool(ReferenceLayer):
    """Average over height and width, which become 1."""

    def forward(self, images):
        self.saved = images.shape
        return images.mean(axis=(2, 3), keepdims=True)

    def backward(self, gradient):
        height, width = self.saved[2:]
        return [numpy.broadcast_to(gradient / gradient.dtype.type(height * width), self.saved)]


class Add(ReferenceLayer):
    """Sum of inputs of one shape."""

    def forward(self, *inputs):
        self.saved = len(inputs)
        total = inputs[0] if len(inputs) == 1 else inputs[0] + inputs[1]
        for values in inputs[2:]:
            total += values
        return total

    def backward(self, gradient):
        return [gradient] * self.saved


class Concat(ReferenceLayer):
    """Channels of all inputs, one behind the other."""

    def forward(self, *inputs):
        self.saved = [values.shape[0] for values in inputs]
        return numpy.concatenate(inputs, axis=0)

    def backward(self, gradient):
        return numpy.split(gradient, numpy.cumsum(self.saved)[:-1], axis=0)


def softmax_cross_entropy(output, targets, smoothing=0.0):
    """Return the mean over the batch of -log softmax(output)[target], and its gradient by ``output``.

    Args:
        output: (classes, batch), of any float type.
        targets: (batch,) class indices.
        smoothing: the share of each target that is spread equally over all classes (Szegedy et al. 2016).
    """
    batch = output.shape[1]
    scores = output.astype(numpy.float64)
    scores -= scores.max(axis=0)
    exponentials = numpy.exp(scores)
    totals = exponentials.sum(axis=0)
    samples = numpy.arange(batch)
    loss = (numpy.log(totals) - (1 - smoothing) * scores[targets, samples]).mean()
    gradient = exponentials / totals
    gradient[targets, samples] -= 1 - smoothing
    if smoothing:
        loss -= smoothing * scores.mean(axis=0).mean()
        gradient -= smoothing / output.shape[0]
    return float(loss), (gradient / batch).astype(output.dtype)


def mean_squared_error(output, targets, smoothing=0.0):  # noqa: ARG001 - values have nothing to be smoothed
    """Return the mean of (output - targets)^2 over all elements, and its gradient by ``output``; shapes are equal."""
    distance = output - targets
    loss = numpy.square(distance).mean(dtype=numpy.float64)
    return float(loss), distance * distance.dtype.type(2.0 / distance.size)
