"""How workers train with Horovod: alone, without it, or with gradients that it adds up within the step."""

import horovod

from steptime.worker.builders.tensorflow import TensorFlowNetwork
from steptime.worker.builders.tensorflow_training import TensorFlowTraining
from steptime.worker.sessions.horovod import HorovodWorkers
from steptime.worker.weights import initial_weights

_OPTIONS = ("controller", "fusion_mb", "cycle_ms", "timeline")


class Alone(object):
    """One worker, which has nobody to exchange gradients with."""

    marks = ("input", "forward", "backward", "update")

    def __init__(self, tf, job, place):
        weights = initial_weights(job["workload"]["layers"], job["seed"])
        self.network = TensorFlowNetwork(job["workload"], weights, job["precision"])
        self.training = self._training(job, place)
        self.facts = {"framework_version": horovod.__version__, "tensorflow": tf.__version__}

    def _training(self, job, _):
        return TensorFlowTraining(self.network, job["optimizer"])

    def wrap(self, function):
        """Return ``function``, which needs nothing around it."""
        return function

    def part(self):
        """There is nobody to leave."""


class Summing(Alone):
    """Each gradient is an operation of Horovod in the graph, which waits for nothing but this gradient."""

    marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, tf, job, place):
        self._workers = HorovodWorkers("tensorflow", place, {name: job["options"][name] for name in _OPTIONS})
        super(Summing, self).__init__(tf, job, place)
        self.facts.update(self._workers.facts)

    def _training(self, job, place):
        combine = self._sum if place.workers > 1 else None
        return TensorFlowTraining(self.network, job["optimizer"], combine, 1.0 / place.workers)

    def _sum(self, gradients):
        """Return the sums of ``gradients`` over all workers; called when the step is compiled."""
        hvd = self._workers.hvd
        return [hvd.allreduce(each, op=hvd.Sum, name="gradient.%d" % index) for index, each in enumerate(gradients)]

    def part(self):
        self._workers.part()


STRATEGIES = {"single": Alone, "allreduce": Summing}
