"""The ablated step in CNTK.

CNTK's trainer is one call. Its parts, forward, backward and the learner's update, are called here one by one on a
function of the same layers and parameters; the whole step with its exchange stays the trainer's. What a distributed
learner does between gradients and new weights cannot be called by itself, so that its steps have no marks.
"""

import cntk
import numpy

from steptime.worker.session import AblatedStep


class CntkAblation(AblatedStep):
    """CNTK's parts of a step, called one by one; steps of a distributed learner have no marks."""

    def __init__(self, function, learner, batches, whole_step, communicator, *, distributed):  # noqa: PLR0913 - a session's parts
        """Take a session's parts.

        Args:
            function: the ``WorkloadFunction``.
            learner: that of this worker alone.
            batches: of the session.
            whole_step: a function that trains on ``(inputs, targets)`` as the session does, with an exchange; None
                for one worker.
            communicator: sums arrays over the workers as whole steps do; None if they do not, or for one worker.
            distributed: whether the session's learner is a distributed one.
        """
        self._function = function
        self._learner = learner
        self._batches = batches
        self._whole_step = whole_step
        self._communicator = communicator
        self._device = cntk.device.cpu()
        # The trainer adds up the losses of the samples too; parameters and layers are shared with its function.
        self._total = cntk.reduce_sum(function.loss, axis=cntk.Axis.all_axes()).output
        self._both = cntk.combine([self._total, function.loss.output])
        self._one = cntk.Value(cntk.NDArrayView.from_dense(numpy.ones((), dtype=numpy.float32)))
        self._samples = 0
        self.marks = () if distributed else ("input", "forward", "backward", "update")

    def stages(self):
        held = next(self._batches)

        def forward():
            self._forward(held)

        def backward():
            self._backward(self._forward(held))

        def local():
            self._update(self._backward(self._forward(held)))

        stages = {"forward": forward, "backward": backward, "local": local, "input": lambda: next(self._batches)}
        if self._whole_step is not None:
            stages["exchange"] = lambda: self._whole_step(*held)
            if self._communicator is not None:
                stages["communication"] = self._summing()
        return stages

    def _forward(self, batch):
        """Compute the losses and return what backward needs."""
        inputs, targets = batch
        arguments = {self._function.features: inputs}
        if self._function.labels is not None:
            arguments[self._function.labels] = targets
        fetched = {self._total: None, self._function.loss.output: None}
        # The public methods would turn what is fetched into numpy, and arguments into sequences.
        state = cntk.cntk_py.Function._forward(  # noqa: SLF001
            self._both, arguments, fetched, self._device, {self._total}
        )
        self._samples = inputs.shape[0]
        return state

    def _backward(self, state):
        """Return ``{parameter: gradient}``."""
        gradients = dict.fromkeys(self._function.parameters)
        cntk.cntk_py.Function._backward(self._both, state, {self._total: self._one}, gradients)  # noqa: SLF001
        return gradients

    def _update(self, gradients):
        values = {parameter: value.data() for parameter, value in gradients.items()}
        cntk.cntk_py.Learner._update(self._learner, values, self._samples, False)  # noqa: SLF001

    def _summing(self):
        """Return a function that sums arrays of the gradients' shapes, as the distributed learner does."""
        shapes = [parameter.shape for parameter in self._function.parameters] + [(), (), ()]  # losses and samples
        arrays = [cntk.NDArrayView.from_dense(numpy.zeros(shape, dtype=numpy.float32)) for shape in shapes]
        workers = self._communicator.workers()
        return lambda: self._communicator.aggregate_in_place(arrays, workers)

    def marked_step(self, mark):
        batch = next(self._batches)
        mark("input")
        state = self._forward(batch)
        mark("forward")
        gradients = self._backward(state)
        mark("backward")
        self._update(gradients)
        mark("update")
