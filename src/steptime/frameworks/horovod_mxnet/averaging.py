"""How the gradients of several workers become one: not at all, or by Horovod."""

from steptime.worker.sessions.horovod import HorovodWorkers

_OPTIONS = ("controller", "fusion_mb", "cycle_ms", "timeline")


class NoExchange(object):
    """One worker, which has nobody to exchange gradients with."""

    facts = {}

    def __init__(self, job, place):
        pass

    def sum(self, gradients):
        """Leave the gradients as they are."""

    def part(self):
        """There is nobody to leave."""


class SumOfWorkers(object):
    """Horovod adds up each gradient in place as soon as MXNet's engine has it."""

    def __init__(self, job, place):
        self._workers = HorovodWorkers("mxnet", place, {name: job["options"][name] for name in _OPTIONS})
        self._alone = place.workers == 1
        self.facts = self._workers.facts

    def sum(self, gradients):
        """Issue the sums of ``gradients`` over all workers; layers that are used first go first."""
        if self._alone:
            return
        for key, gradient in enumerate(gradients):
            self._workers.hvd.allreduce_(gradient, op=self._workers.hvd.Sum, name=str(key), priority=-key)

    def part(self):
        """Leave the other workers."""
        self._workers.part()
