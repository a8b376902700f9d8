"""How workers train with Horovod: alone, without it, or with gradients that it adds up within the step."""

import horovod

from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.training_step import TensorFlowTraining
from steptime.worker.weights import initial_weights


class SingleTraining(object):
    """One worker, which has nobody to exchange gradients with."""

    marks = ("input", "forward", "backward", "update")

    def __init__(self, tf, job, context):
        weights = initial_weights(job["workload"]["layers"], job["seed"])
        self.network = TensorFlowNetwork(job["workload"], weights, job["precision"])
        self.training = self._training(job, context)
        self.facts = {"framework_version": horovod.__version__, "tensorflow": tf.__version__}

    def _training(self, job, _):
        return TensorFlowTraining(self.network, job["optimizer"])

    def wrap(self, function):
        """Return ``function``, which needs nothing around it."""
        return function

    def leave(self):
        """There is nobody to leave."""


class HorovodTraining(SingleTraining):
    """Each gradient is an operation of Horovod in the graph, which waits for nothing but this gradient."""

    marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, tf, job, context):
        self._workers = HorovodWorkers("tensorflow", context, job)
        super(HorovodTraining, self).__init__(tf, job, context)
        self.facts.update(self._workers.facts)

    def _training(self, job, context):
        combine = self._sum if context.workers > 1 else None
        return TensorFlowTraining(self.network, job["optimizer"], combine, 1.0 / context.workers)

    def _sum(self, gradients):
        """Return the sums of ``gradients`` over all workers; called when the step is compiled."""
        hvd = self._workers.hvd
        return [hvd.allreduce(each, op=hvd.Sum, name="gradient.%d" % index) for index, each in enumerate(gradients)]

    def leave(self):
        self._workers.leave()


STRATEGIES = {"single": SingleTraining, "allreduce": HorovodTraining}
