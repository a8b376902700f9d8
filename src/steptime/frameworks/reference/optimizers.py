"""The optimizers in plain numpy, by the formulas of docs/worker-protocol.md, over the flat vector of all weights.

Numbers are of the type of the weights, so that 64 bits show what the rounding of 32 does.
"""

import numpy

from steptime.worker.weights import is_decayed


class ReferenceOptimizer(object):
    """One optimizer: what it keeps from step to step, and how a gradient changes the weights.

    ``kept``
        ``{name: vector}`` of what it keeps, each as long as the weights.
    """

    def __init__(self, job, values, arrays):
        """Begin with nothing kept.

        Args:
            job: the job; ``options`` may hold ``adam_epsilon``, which says nothing about lamb, and
                ``rate_in_velocity``, as manifests have them.
            values: the vector of all weights, which updates change.
            arrays: of each array of weights, its slice of the vector and its number of axes.
        """
        self._settings = job["optimizer"]
        self.rate = self._settings["learning_rate"]
        uncorrected = job["options"].get("adam_epsilon") == "uncorrected"
        self._uncorrected = uncorrected and self._settings["name"] != "lamb"
        self._rate_in_velocity = job["options"].get("rate_in_velocity", False)
        self._values = values
        self._arrays = arrays
        self._decay = self._number("weight_decay")
        if self._settings.get("decayed", "all") != "all":
            self._decay = numpy.full_like(values, self._decay)
            for part, axes in arrays:
                self._decay[part] *= is_decayed(self._settings, axes)
        self._steps = 0
        self._change = _CHANGES[self._settings["name"]]
        names = ("velocity",) if self._settings["name"] in ("sgd", "nesterov", "lars") else ("first", "second")
        self.kept = {name: numpy.zeros_like(values) for name in names}

    def update(self, slopes):
        """Change the weights by the gradient ``slopes``, which may be overwritten."""
        self._steps += 1
        self._clip(slopes)
        self._change(self, slopes)

    def _clip(self, slopes):
        """Shorten a gradient that is longer than ``clip_norm`` (Pascanu, Mikolov, Bengio 2013)."""
        most = self._settings.get("clip_norm")
        length = most and _length(slopes)
        if most and length > most:
            slopes *= slopes.dtype.type(most / length)

    def forget(self):
        """Begin anew, with nothing kept."""
        self._steps = 0
        for kept in self.kept.values():
            kept[:] = 0

    def state(self):
        """Return copies of everything that updates depend on, but the weights."""
        return dict({name: kept.copy() for name, kept in self.kept.items()}, steps=numpy.array(self._steps))

    def set_state(self, state):
        """Take what ``state`` returned."""
        self._steps = int(state["steps"])
        for name, kept in self.kept.items():
            kept[:] = state[name]

    def _number(self, name):
        return self._values.dtype.type(self._settings[name])

    def _decayed(self, slopes):
        """Return the gradient and ``weight_decay`` times the weights."""
        if self._settings["weight_decay"]:
            slopes += self._decay * self._values
        return slopes

    def _momentum(self, slopes):
        self._descend(self._gathered(self._decayed(slopes)))

    def _nesterov(self, slopes):
        slopes = self._decayed(slopes)
        velocity = self._gathered(slopes)
        own = slopes.dtype.type(self.rate) * slopes if self._rate_in_velocity else slopes
        self._descend(own + self._number("momentum") * velocity)

    def _lars(self, slopes):
        """You, Gitman, Ginsburg 2017: each array's step has a length in proportion to that of its weights.

        Arrays of one axis, which are biases and normalisation, take the step of momentum.
        """
        settings = self._settings
        for part, axes in self._arrays:
            weights, slope = _length(self._values[part]), _length(slopes[part])
            if axes > 1 and weights > 0.0 and slope > 0.0:
                ratio = settings["trust_coefficient"] * weights / (slope + settings["weight_decay"] * weights)
                slopes[part] = ratio * (slopes[part] + settings["weight_decay"] * self._values[part])
            elif is_decayed(settings, axes):
                slopes[part] += self._number("weight_decay") * self._values[part]
        self._descend(self._gathered(slopes))

    def _gathered(self, slopes):
        """Return the velocity with this step's gradient in it."""
        velocity = self.kept["velocity"]
        velocity *= self._number("momentum")
        velocity += slopes.dtype.type(self.rate) * slopes if self._rate_in_velocity else slopes
        return velocity

    def _descend(self, step):
        self._values -= step if self._rate_in_velocity else self._values.dtype.type(self.rate) * step

    def _adam(self, slopes):
        self._values -= self._values.dtype.type(self.rate) * self._normalised(self._decayed(slopes))

    def _adamw(self, slopes):
        """Loshchilov, Hutter 2019: the decay is not part of the gradient."""
        step = self._normalised(slopes)
        if numpy.ndim(self._decay):
            self._values *= 1 - self._values.dtype.type(self.rate) * self._decay
        else:
            self._values *= self._values.dtype.type(1.0 - self.rate * self._settings["weight_decay"])
        self._values -= self._values.dtype.type(self.rate) * step

    def _lamb(self, slopes):
        """You et al. 2020: Adam's step, of each array as long as the weights; where one has no length, as it is."""
        step = self._normalised(slopes) + self._decay * self._values
        for part, _ in self._arrays:
            weights, length = _length(self._values[part]), _length(step[part])
            if weights > 0.0 and length > 0.0:
                step[part] *= weights / length
        self._values -= self._values.dtype.type(self.rate) * step

    def _normalised(self, slopes):
        """Return the mean of gradients over the root of the mean of their squares (Kingma, Ba 2015)."""
        settings, first, second = self._settings, self.kept["first"], self.kept["second"]
        first *= self._number("beta1")
        first += slopes.dtype.type(1.0 - settings["beta1"]) * slopes
        second *= self._number("beta2")
        second += slopes.dtype.type(1.0 - settings["beta2"]) * slopes * slopes
        of_first = 1.0 - settings["beta1"] ** self._steps
        root_of_second = (1.0 - settings["beta2"] ** self._steps) ** 0.5
        number = slopes.dtype.type
        if self._uncorrected:
            return number(root_of_second / of_first) * first / (numpy.sqrt(second) + self._number("epsilon"))
        return number(1.0 / of_first) * first / (numpy.sqrt(second) / number(root_of_second) + self._number("epsilon"))


_CHANGES = {
    "sgd": ReferenceOptimizer._momentum,  # noqa: SLF001 - this module's own
    "nesterov": ReferenceOptimizer._nesterov,  # noqa: SLF001
    "adam": ReferenceOptimizer._adam,  # noqa: SLF001
    "adamw": ReferenceOptimizer._adamw,  # noqa: SLF001
    "lars": ReferenceOptimizer._lars,  # noqa: SLF001
    "lamb": ReferenceOptimizer._lamb,  # noqa: SLF001
}


def _length(vector):
    """Return the Euclidean length, summed in 64 bits."""
    return float(numpy.sqrt(numpy.square(vector, dtype=numpy.float64).sum()))
