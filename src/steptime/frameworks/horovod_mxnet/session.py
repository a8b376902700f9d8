"""A session in MXNet whose gradients Horovod sums over the workers."""

import horovod
import mxnet

from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.mxnet.session import MXNetSession, OwnUpdate, optimizer_settings


class AveragedUpdate(OwnUpdate):
    """Horovod adds up each gradient in place as soon as MXNet's engine has it; then this worker updates its weights.

    The settings of the optimizer divide by the samples of all workers.
    """

    def __init__(self, settings, bound, job, context):
        """Join the other workers; ``settings`` and ``bound`` are those of ``OwnUpdate``."""
        super(AveragedUpdate, self).__init__(settings, bound)
        self._workers = HorovodWorkers("mxnet", context, job)
        if context.workers > 1:
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
        self._workers.leave()

    def abandon(self):
        """Leave Horovod to the end of this process: its farewell waits for the others, who may wait for this one."""


class HorovodSession(MXNetSession):
    """MXNet's session; the framework that it reports is Horovod."""

    def __init__(self, job, context):
        settings = optimizer_settings(job, context.workers)

        def update(bound):
            if job["strategy"] == "single":
                return OwnUpdate(settings, bound)
            return AveragedUpdate(settings, bound, job, context)

        super(HorovodSession, self).__init__(job, context, mxnet.cpu(), update)

    def facts(self):
        facts = super(HorovodSession, self).facts()
        facts.update(framework_version=horovod.__version__, mxnet=mxnet.__version__)
        return facts
