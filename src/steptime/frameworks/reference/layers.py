"""Each kind of layer in plain numpy, its forward computation and its gradients, and the losses.

Arrays inside are channels first and batch *second*: ``(channels, batch, height, width)`` or ``(features, batch)``. One
matrix product then covers a whole batch, statistics of a channel lie in one row, and channels join along the first
axis; with the batch first, each of these would need a transposition.

A window that slides over images is one strided slice per position within the window: ``taps`` goes over these
positions, not over the windows, so that the loops of Python are as short as the window is small. Convolution is a
matrix product over unfolded windows (Chellapilla et al. 2006). Losses are summed in 64 bits.
"""

import abc

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
        self.saved = None

    @abc.abstractmethod
    def forward(self, *inputs):
        """Return the output; ``inputs`` must not be changed, others read them too."""

    @abc.abstractmethod
    def backward(self, gradient):
        """Return the gradients of the inputs, in their order, from that of the output; fill ``self.gradients``.

        ``gradient`` must not be changed; it may be returned.
        """


class Sliding(object):
    """The geometry of one layer's windows."""

    def __init__(self, attributes, output_shape):
        self.kernel = tuple(attributes["kernel"])
        self.stride = tuple(attributes["stride"])
        self.padding = tuple(attributes["padding"])
        self.output = tuple(output_shape[1:])
        # Far side of the last window, counted from the beginning of the padding.
        self._reach = tuple(
            (count - 1) * stride + kernel for count, stride, kernel in zip(self.output, self.stride, self.kernel)
        )

    @property
    def trivial(self):
        """Whether every window is one value and there is one for every value."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    def pad(self, images, value):
        """Return ``images`` with ``value`` around them, exactly as far as windows reach.

        In ceil mode the last windows reach beyond the padding on the right and at the bottom; elsewhere they may
        end before the image does, and what no window sees is cut off.
        """
        if self.padding == (0, 0) and all(reach <= size for reach, size in zip(self._reach, images.shape[2:])):
            return images[:, :, : self._reach[0], : self._reach[1]]
        padded = numpy.full(images.shape[:2] + self._reach, value, dtype=images.dtype)
        here, there = self._overlap(images)
        padded[here] = images[there]
        return padded

    def unpad(self, padded, images):
        """Copy what lies inside the images from ``padded`` to ``images``; what no window saw keeps its value."""
        here, there = self._overlap(images)
        images[there] = padded[here]

    def taps(self, padded):
        """Yield, row by row, what each position of the window sees, as views over all windows."""
        height, width = self.output
        for row in range(self.kernel[0]):
            rows = slice(row, row + (height - 1) * self.stride[0] + 1, self.stride[0])
            for column in range(self.kernel[1]):
                columns = slice(column, column + (width - 1) * self.stride[1] + 1, self.stride[1])
                yield padded[:, :, rows, columns]

    def spread(self, padded):
        """Return a new array ``(channels, taps, batch, height, width)`` of what all windows see."""
        channels, batch = padded.shape[:2]
        count = self.kernel[0] * self.kernel[1]
        taps = numpy.empty((channels, count, batch) + self.output, dtype=padded.dtype)
        for index, view in enumerate(self.taps(padded)):
            taps[:, index] = view
        return taps

    def gather(self, taps, padded):
        """Add what windows hold, as ``spread`` returns it, to the places in ``padded`` that it was read from."""
        channels, batch = padded.shape[:2]
        taps = taps.reshape((channels, -1, batch) + self.output)
        for index, view in enumerate(self.taps(padded)):
            numpy.add(view, taps[:, index], out=view)

    def _overlap(self, images):
        """Indices of one region: where it is in the padded images, and where in the images themselves."""
        sizes = [
            min(size, reach - padding) for size, reach, padding in zip(images.shape[2:], self._reach, self.padding)
        ]
        everything = (slice(None), slice(None))
        here = tuple(slice(padding, padding + size) for padding, size in zip(self.padding, sizes))
        return everything + here, everything + tuple(slice(size) for size in sizes)


# Windows are spread for so many bytes at once: large enough for the matrix product, small enough for the memory of a
# laptop (a whole batch of VGG-16 would take a gigabyte). For the same reason they are spread again when going back.
_SPREAD_BYTES = 32 * 2**20


class Conv2d(ReferenceLayer):
    """Cross-correlation with zero padding; weight (out, in / groups, height, width)."""

    def __init__(self, *arguments):
        super(Conv2d, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)

    def forward(self, images):
        self.saved = images
        out, height, width = self.output_shape
        output = numpy.empty((out, images.shape[1], height, width), dtype=images.dtype)
        for ins, outs in self._groups(images):
            padded = self._sliding.pad(images[ins], 0)
            for part in self._parts(padded):
                product = numpy.matmul(_matrix(self.weights["weight"][outs]), self._columns(padded[:, part]))
                output[outs, part] = product.reshape(output[outs, part].shape)
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1, 1, 1)
        return output

    def backward(self, gradient):
        images, self.saved = self.saved, None
        self.gradients["weight"][...] = 0
        if "bias" in self.gradients:
            _matrix(gradient).sum(axis=1, out=self.gradients["bias"])
        image_gradient = numpy.zeros_like(images) if self.wants_input_gradient else None
        for ins, outs in self._groups(images):
            padded = self._sliding.pad(images[ins], 0)
            padded_gradient = numpy.zeros_like(padded) if self.wants_input_gradient else None
            for part in self._parts(padded):
                rows = _matrix(gradient[outs, part])
                weight_gradient = numpy.matmul(rows, self._columns(padded[:, part]).T)
                self.gradients["weight"][outs] += weight_gradient.reshape(self.gradients["weight"][outs].shape)
                if self.wants_input_gradient:
                    columns = numpy.matmul(_matrix(self.weights["weight"][outs]).T, rows)
                    self._sliding.gather(columns, padded_gradient[:, part])
            if self.wants_input_gradient:
                self._sliding.unpad(padded_gradient, image_gradient[ins])
        return [image_gradient]

    def _groups(self, images):
        """Yield the slices of input and output channels that belong together."""
        groups = self.attributes["groups"]
        ins, outs = images.shape[0] // groups, self.output_shape[0] // groups
        for group in range(groups):
            yield slice(group * ins, (group + 1) * ins), slice(group * outs, (group + 1) * outs)

    def _parts(self, padded):
        """Yield slices of the batch whose spread windows stay within the limit."""
        channels, batch = padded.shape[:2]
        _, height, width = self.output_shape
        rows, columns = self.attributes["kernel"]
        one = channels * rows * columns * height * width * padded.dtype.itemsize
        at_once = max(1, _SPREAD_BYTES // one)
        for start in range(0, batch, at_once):
            yield slice(start, start + at_once)

    def _columns(self, padded):
        """Return the matrix ``(channels x window, batch x height x width)`` of all windows."""
        if self._sliding.trivial:
            return _matrix(padded)
        rows, columns = self.attributes["kernel"]
        return self._sliding.spread(padded).reshape(padded.shape[0] * rows * columns, -1)


def _matrix(array):
    """Return ``array`` with all axes but the first as one."""
    return array.reshape(array.shape[0], -1)


class Linear(ReferenceLayer):
    """weight @ features + bias; weight (out, in)."""

    def forward(self, features):
        self.saved = features
        output = numpy.matmul(self.weights["weight"], features)
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1)
        return output

    def backward(self, gradient):
        features, self.saved = self.saved, None
        numpy.matmul(gradient, features.T, out=self.gradients["weight"])
        if "bias" in self.gradients:
            gradient.sum(axis=1, out=self.gradients["bias"])
        if not self.wants_input_gradient:
            return [None]
        return [numpy.matmul(self.weights["weight"].T, gradient)]


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

    Statistics are summed in 64 bits. There are no running statistics: nothing here computes without training.
    """

    def forward(self, values):
        rows = values.reshape(values.shape[0], -1)
        mean = rows.mean(axis=1, dtype=numpy.float64)
        normalised = rows - _column(mean, rows)
        variance = numpy.square(normalised).mean(axis=1, dtype=numpy.float64)
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

    def backward(self, gradient):
        mask, self.saved = self.saved, None
        return [gradient if mask is None else gradient * mask]


class MaxPool(ReferenceLayer):
    """Largest value of each window; of equal ones the first in reading order gets the gradient."""

    def __init__(self, *arguments):
        super(MaxPool, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)

    def forward(self, images):
        padded = self._sliding.pad(images, -numpy.inf)
        taps = self._sliding.taps(padded)
        largest = next(taps).copy()
        winner = numpy.zeros(largest.shape, dtype=numpy.uint16)
        for index, view in enumerate(taps, 1):
            winner[view > largest] = index
            numpy.maximum(largest, view, out=largest)
        self.saved = winner, images.shape, padded.shape
        return largest

    def backward(self, gradient):
        (winner, shape, padded_shape), self.saved = self.saved, None
        padded = numpy.zeros(padded_shape, dtype=gradient.dtype)
        for index, view in enumerate(self._sliding.taps(padded)):
            numpy.add(view, gradient * (winner == index), out=view)
        result = numpy.zeros(shape, dtype=gradient.dtype)
        self._sliding.unpad(padded, result)
        return [result]


class AvgPool(ReferenceLayer):
    """Average of each window, in which padding counts as zeros."""

    def __init__(self, *arguments):
        super(AvgPool, self).__init__(*arguments)
        self._sliding = Sliding(self.attributes, self.output_shape)
        self._share = 1.0 / (self.attributes["kernel"][0] * self.attributes["kernel"][1])

    def forward(self, images):
        padded = self._sliding.pad(images, 0)
        self.saved = images.shape, padded.shape
        total = numpy.zeros(images.shape[:2] + self.output_shape[1:], dtype=images.dtype)
        for view in self._sliding.taps(padded):
            total += view
        total *= self._share
        return total

    def backward(self, gradient):
        shape, padded_shape = self.saved
        padded = numpy.zeros(padded_shape, dtype=gradient.dtype)
        part = gradient * gradient.dtype.type(self._share)
        for view in self._sliding.taps(padded):
            numpy.add(view, part, out=view)
        result = numpy.zeros(shape, dtype=gradient.dtype)
        self._sliding.unpad(padded, result)
        return [result]


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


def softmax_cross_entropy(output, targets):
    """Return the mean over the batch of -log softmax(output)[target], and its gradient by ``output``.

    Args:
        output: (classes, batch), of any float type.
        targets: (batch,) class indices.
    """
    batch = output.shape[1]
    scores = output.astype(numpy.float64)
    scores -= scores.max(axis=0)
    exponentials = numpy.exp(scores)
    totals = exponentials.sum(axis=0)
    samples = numpy.arange(batch)
    loss = (numpy.log(totals) - scores[targets, samples]).mean()
    gradient = exponentials / totals
    gradient[targets, samples] -= 1
    return float(loss), (gradient / batch).astype(output.dtype)


def mean_squared_error(output, targets):
    """Return the mean of (output - targets)^2 over all elements, and its gradient by ``output``; shapes are equal."""
    distance = output - targets
    loss = numpy.square(distance).mean(dtype=numpy.float64)
    return float(loss), distance * distance.dtype.type(2.0 / distance.size)


LOSSES = {"softmax_cross_entropy": softmax_cross_entropy, "mean_squared_error": mean_squared_error}


LAYERS = {
    "conv2d": Conv2d,
    "linear": Linear,
    "batch_norm": BatchNorm,
    "relu": Relu,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_avg_pool": GlobalAvgPool,
    "lrn": LocalResponseNorm,
    "dropout": Dropout,
    "flatten": Flatten,
    "add": Add,
    "concat": Concat,
}
