"""A session in MXNet whose gradients Horovod sums over the workers."""

import horovod
import mxnet

from steptime.frameworks.horovod_mxnet.communication import split
from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.mxnet.optimizers import make_optimizer
from steptime.libraries.mxnet.session import MXNetSession, OwnUpdate


class AveragedUpdate(OwnUpdate):
    """Horovod adds up each gradient in place as soon as MXNet's engine has it; then this worker updates its weights.

    The optimizer divides by the samples of all workers.
    """

    def __init__(self, optimizer, bound, job, context):
        """Join the other workers; ``optimizer`` and ``bound`` are those of ``OwnUpdate``."""
        super(AveragedUpdate, self).__init__(optimizer, bound, job["options"]["arrays_per_update"])
        self._workers = HorovodWorkers("mxnet", context, job)
        if context.workers > 1:
            self.arriving = self._gradients
        self._groups = split(list(enumerate(self._gradients)), job["options"]["groups"])
        self.facts.update(self._workers.facts, groups=len(self._groups))

    def step(self):
        """Start the sum of all gradients over the workers, and the update."""
        self.exchange()
        self.apply()

    def exchange(self):
        """Start the sums; layers that are used first go first."""
        hvd = self._workers.hvd
        if not self._groups:
            for key, gradient in enumerate(self.arriving):
                hvd.allreduce_(gradient, op=hvd.Sum, name=str(key), priority=-key)
        for group in self._groups if self.arriving else ():
            keys, gradients = zip(*group)
            hvd.grouped_allreduce_(list(gradients), op=hvd.Sum, name="group-%d" % keys[0], priority=-keys[0])

    def close(self):
        """Leave the other workers."""
        self._workers.leave()

    def abandon(self):
        """Leave Horovod to the end of this process: its farewell waits for the others, who may wait for this one."""


class HorovodSession(MXNetSession):
    """MXNet's session; the framework that it reports is Horovod."""

    def __init__(self, job, context):
        optimizer = make_optimizer(job, context.workers)

        def update(bound):
            if job["strategy"] == "single":
                return OwnUpdate(optimizer, bound, job["options"]["arrays_per_update"])
            return AveragedUpdate(optimizer, bound, job, context)

        super(HorovodSession, self).__init__(job, context, mxnet.cpu(), update)

    def facts(self):
        facts = super(HorovodSession, self).facts()
        facts.update(framework_version=horovod.__version__, mxnet=mxnet.__version__)
        return facts
