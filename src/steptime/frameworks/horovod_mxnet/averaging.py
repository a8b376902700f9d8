"""How the gradients of several workers become one: Horovod adds them up."""

from steptime.worker.sessions.horovod import HorovodWorkers
from steptime.worker.sessions.mxnet import OwnUpdate

_OPTIONS = ("controller", "fusion_mb", "cycle_ms", "timeline")


class AveragedUpdate(OwnUpdate):
    """Horovod adds up each gradient in place as soon as MXNet's engine has it; then this worker updates its weights.

    The settings of the optimizer divide by the samples of all workers.
    """

    def __init__(self, settings, bound, options, place):
        """Meet the other workers; ``settings`` and ``bound`` are those of ``OwnUpdate``."""
        super(AveragedUpdate, self).__init__(settings, bound)
        self._workers = HorovodWorkers("mxnet", place, {name: options[name] for name in _OPTIONS})
        if place.workers > 1:
            self.arriving = self._gradients
        self.facts.update(self._workers.facts)

    def step(self):
        """Start the sum of all gradients over the workers, and the update."""
        self.exchange()
        self.apply()

    def exchange(self):
        """Start the sums; layers that are used first go first."""
        for key, gradient in enumerate(self.arriving):
            self._workers.hvd.allreduce_(gradient, op=self._workers.hvd.Sum, name=str(key), priority=-key)

    def close(self):
        """Leave the other workers."""
        self._workers.part()

    def abandon(self):
        """Leave Horovod to the end of this process: its farewell waits for the others, who may wait for this one."""
