"""The layers of transformers in plain numpy, forward and backward.

Sequences are ``(tokens, batch, features)``: as elsewhere, the batch is second.
"""

import math

import numpy

from steptime.frameworks.reference.layers import ReferenceLayer, softmax_cross_entropy
from steptime.worker.weights import rotary_turns

_STEPS = 256
"""Of a unit, in the table of the error function."""
_LAST = 6.0
"""Beyond which the error function is 1 to the last of 53 bits."""
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715
"""Of GELU's approximation."""
_TABLE = numpy.array([math.erf(index / float(_STEPS)) for index in range(int(_LAST) * _STEPS + 1)])


class Tokens(ReferenceLayer):
    """The pixels of an image become tokens, row by row; channels become features."""

    def forward(self, images):
        self.saved = images.shape
        channels, batch = images.shape[:2]
        return numpy.ascontiguousarray(images.reshape(channels, batch, -1).transpose(2, 1, 0))

    def backward(self, gradient):
        return [numpy.ascontiguousarray(gradient.transpose(2, 1, 0)).reshape(self.saved)]


class Embedding(ReferenceLayer):
    """The vector of each token; weight (vocabulary, features)."""

    tied = False
    """Whether an unembedding has put its own gradient of the weight where that of this layer is to be."""

    def forward(self, numbers):
        self.saved = numbers
        return self.weights["weight"][numbers]

    def backward(self, gradient):
        numbers, self.saved = self.saved, None
        if not self.tied:
            self.gradients["weight"][...] = 0
        numpy.add.at(self.gradients["weight"], numbers, gradient)
        return [None]


class Unembedding(ReferenceLayer):
    """A score for each token of a vocabulary, values @ weight.T; weight (vocabulary, features), of an embedding."""

    def forward(self, values):
        self.saved = values
        rows = values.reshape(-1, values.shape[-1])
        scores = numpy.matmul(rows, self.weights["weight"].T)
        if "bias" in self.weights:
            scores += self.weights["bias"]
        return scores.reshape(values.shape[:2] + (-1,))

    def backward(self, gradient):
        values, self.saved = self.saved, None
        rows = gradient.reshape(-1, gradient.shape[-1])
        numpy.matmul(rows.T, values.reshape(-1, values.shape[-1]), out=self.gradients["weight"])
        if "bias" in self.gradients:
            rows.sum(axis=0, out=self.gradients["bias"])
        return [numpy.matmul(rows, self.weights["weight"]).reshape(values.shape)]


class ClassToken(ReferenceLayer):
    """A trained token (1, features) before those of the sequence."""

    def forward(self, values):
        first = numpy.broadcast_to(self.weights["weight"], values.shape[1:])
        return numpy.concatenate([first[None], values], axis=0)

    def backward(self, gradient):
        gradient[0].sum(axis=0, out=self.gradients["weight"][0])
        return [gradient[1:]]


class Positions(ReferenceLayer):
    """values + weight; weight (tokens, features)."""

    def forward(self, values):
        return values + self.weights["weight"][:, None]

    def backward(self, gradient):
        gradient.sum(axis=1, out=self.gradients["weight"])
        return [gradient]


class Segment(ReferenceLayer):
    """values + the first row of weight; weight (segments, features)."""

    def forward(self, values):
        return values + self.weights["weight"][0]

    def backward(self, gradient):
        self.gradients["weight"][...] = 0
        gradient.sum(axis=(0, 1), out=self.gradients["weight"][0])
        return [gradient]


class FirstToken(ReferenceLayer):
    """The first token alone, as (features, batch)."""

    def forward(self, values):
        self.saved = values.shape
        return numpy.ascontiguousarray(values[0].T)

    def backward(self, gradient):
        result = numpy.zeros(self.saved, dtype=gradient.dtype)
        result[0] = gradient.T
        return [result]


class LayerNorm(ReferenceLayer):
    """Each token less its mean, over its standard deviation, scaled and shifted (Ba, Kiros, Hinton 2016).

    The variance is the biased one. Sums are in 64 bits.
    """

    def forward(self, values):
        mean = values.mean(axis=-1, dtype=numpy.float64, keepdims=True)
        normalised = values - mean.astype(values.dtype)
        variance = numpy.square(normalised).mean(axis=-1, dtype=numpy.float64, keepdims=True)
        inverse = (1 / numpy.sqrt(variance + self.attributes["epsilon"])).astype(values.dtype)
        normalised *= inverse
        self.saved = normalised, inverse
        return normalised * self.weights["weight"] + self.weights["bias"]

    def backward(self, gradient):
        (normalised, inverse), self.saved = self.saved, None
        self.gradients["bias"][...] = gradient.sum(axis=(0, 1), dtype=numpy.float64)
        self.gradients["weight"][...] = (gradient * normalised).sum(axis=(0, 1), dtype=numpy.float64)
        result = gradient * self.weights["weight"]
        shift = result.mean(axis=-1, dtype=numpy.float64, keepdims=True).astype(result.dtype)
        scale = (result * normalised).mean(axis=-1, dtype=numpy.float64, keepdims=True).astype(result.dtype)
        result -= shift
        result -= normalised * scale
        result *= inverse
        return [result]


class RmsNorm(ReferenceLayer):
    """Each token over the root of its mean square, scaled (Zhang, Sennrich 2019). Sums are in 64 bits."""

    def forward(self, values):
        square = numpy.square(values).mean(axis=-1, dtype=numpy.float64, keepdims=True)
        inverse = (1 / numpy.sqrt(square + self.attributes["epsilon"])).astype(values.dtype)
        normalised = values * inverse
        self.saved = normalised, inverse
        return normalised * self.weights["weight"]

    def backward(self, gradient):
        (normalised, inverse), self.saved = self.saved, None
        self.gradients["weight"][...] = (gradient * normalised).sum(axis=(0, 1), dtype=numpy.float64)
        result = gradient * self.weights["weight"]
        scale = (result * normalised).mean(axis=-1, dtype=numpy.float64, keepdims=True).astype(result.dtype)
        result -= normalised * scale
        result *= inverse
        return [result]


def erf(values):
    """Return the error function to the last bits of float64: its Taylor series about the nearest entry of a table.

    The derivatives are those of exp(-x^2) (Abramowitz, Stegun 1964, 7.1.19); the sixth power of 1/512 is below the
    last bit.
    """
    sizes = numpy.minimum(numpy.abs(values), _LAST)
    places = numpy.rint(sizes * _STEPS).astype(numpy.intp)
    near = places / float(_STEPS)
    apart = sizes - near
    square = near * near
    series = apart * (square * (square * 4 - 12) + 3) / 30
    for derivative, count in ((near * (3 - 2 * square), 6.0), (2 * square - 1, 3.0), (-near, 1.0), (1.0, 1.0)):
        series = apart * (derivative / count + series)
    return numpy.copysign(_TABLE[places] + 2 / math.sqrt(math.pi) * numpy.exp(-square) * series, values)


class Gelu(ReferenceLayer):
    """x * (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh (Hendrycks, Gimpel 2016)."""

    def forward(self, values):
        if self.attributes["approximate"]:
            below = 0.5 + 0.5 * numpy.tanh(_ROOT * (values + _CUBIC * values * values * values))
        else:
            below = (0.5 + 0.5 * erf(values * math.sqrt(0.5))).astype(values.dtype)
        self.saved = values, below
        return values * below

    def backward(self, gradient):
        (values, below), self.saved = self.saved, None
        if self.attributes["approximate"]:
            density = 2 * below * (1 - below) * _ROOT * (1 + 3 * _CUBIC * values * values)
        else:
            density = numpy.exp(-0.5 * values * values) / values.dtype.type(math.sqrt(2 * math.pi))
        return [gradient * (below + values * density)]


class SwiGlu(ReferenceLayer):
    """g * sigmoid(g) * x, g the first half of each token's features and x the second (Shazeer 2020)."""

    def forward(self, values):
        gates, contents = numpy.split(values, 2, axis=-1)
        passing = 0.5 + 0.5 * numpy.tanh(0.5 * gates)
        self.saved = gates, contents, passing
        return gates * passing * contents

    def backward(self, gradient):
        (gates, contents, passing), self.saved = self.saved, None
        slope = passing * (1 + gates * (1 - passing))
        return [numpy.concatenate([gradient * contents * slope, gradient * gates * passing], axis=-1)]


class Attention(ReferenceLayer):
    """softmax(queries · keys / sqrt(features of a head)) · values, of each head (Vaswani et al. 2017).

    Inside, arrays are (batch, heads of keys, heads of queries for each of them, tokens, features of a head).
    """

    def __init__(self, *arguments):
        super(Attention, self).__init__(*arguments)
        self._shared = self.attributes.get("key_value_heads", self.attributes["heads"])
        self._turns = rotary_turns(arguments[0])

    def forward(self, values):
        queries, keys, contents = self._heads(values)
        scores = numpy.matmul(queries, keys.swapaxes(3, 4))
        scores *= self._scale(queries)
        if self.attributes["causal"]:
            scores[..., numpy.triu(numpy.ones(scores.shape[3:], dtype=bool), 1)] = -numpy.inf
        scores -= scores.max(axis=-1, keepdims=True)
        shares = numpy.exp(scores, out=scores)
        shares /= shares.sum(axis=-1, keepdims=True)
        self.saved = queries, keys, contents, shares
        return self._joined(numpy.matmul(shares, contents))

    def backward(self, gradient):
        (queries, keys, contents, shares), self.saved = self.saved, None
        tokens, batch = gradient.shape[:2]
        gradient = gradient.reshape((tokens, batch) + shares.shape[1:3] + (-1,)).transpose(1, 2, 3, 0, 4)
        slopes = numpy.matmul(gradient, contents.swapaxes(3, 4))
        slopes -= (slopes * shares).sum(axis=-1, keepdims=True)
        slopes *= shares
        slopes *= self._scale(queries)
        of_queries = numpy.matmul(slopes, keys)
        of_keys = numpy.matmul(slopes.swapaxes(3, 4), queries).sum(axis=2, keepdims=True)
        of_contents = numpy.matmul(shares.swapaxes(3, 4), gradient).sum(axis=2, keepdims=True)
        parts = (self._turned(of_queries, -1), self._turned(of_keys, -1), of_contents)
        return [numpy.concatenate([self._joined(part) for part in parts], axis=-1)]

    def _heads(self, values):
        """Return queries, keys and values, each with its heads apart."""
        tokens, batch = values.shape[:2]
        heads, shared = self.attributes["heads"], self._shared
        rows = values.reshape(tokens, batch, heads + 2 * shared, -1).transpose(1, 2, 0, 3)
        queries, keys, contents = numpy.split(rows, [heads, heads + shared], axis=1)
        queries = queries.reshape((batch, shared, heads // shared) + queries.shape[2:])
        parts = self._turned(queries, 1), self._turned(keys[:, :, None], 1), contents[:, :, None]
        return [numpy.ascontiguousarray(part) for part in parts]

    def _turned(self, values, sign):
        """Return queries or keys with each pair of features turned by the angle of its place, or back."""
        if self._turns is None:
            return values
        cosines, sines = (each.astype(values.dtype) for each in (self._turns[0], sign * self._turns[1]))
        first, second = numpy.split(values, 2, axis=-1)
        return numpy.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)

    @staticmethod
    def _joined(values):
        batch, shared, group, tokens, features = values.shape
        return values.transpose(3, 0, 1, 2, 4).reshape(tokens, batch, shared * group * features)

    @staticmethod
    def _scale(queries):
        return queries.dtype.type(queries.shape[-1] ** -0.5)


def token_cross_entropy(output, targets, smoothing=0.0):
    """Return the mean of the cross entropy over all predicted tokens, and its gradient by ``output``.

    Args:
        output: (tokens, batch, classes), of any float type.
        targets: (tokens, batch) class indices, negative where nothing is predicted.
        smoothing: as in ``softmax_cross_entropy``.
    """
    predicted = targets >= 0
    loss, gradient = softmax_cross_entropy(output[predicted].T, targets[predicted], smoothing)
    result = numpy.zeros_like(output)
    result[predicted] = gradient.T
    return loss, result
