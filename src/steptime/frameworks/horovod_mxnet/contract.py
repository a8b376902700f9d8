"""What Horovod with MXNet gives to its tests."""

from steptime.libraries.mxnet.contract import batches, freeze_last_layer, weights
from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract


def _keep_back(*_):
    from steptime.frameworks.horovod_mxnet import session

    exchange = session.AveragedUpdate.exchange

    def partly(self):
        self.arriving, arriving = self.arriving[:-1], self.arriving
        exchange(self)
        self.arriving = arriving

    session.AveragedUpdate.exchange = partly


def _clip_apart(job, context):
    """Have each worker shorten its own sum, whose length is that of a mean times its samples."""
    import mxnet

    from steptime.frameworks.horovod_mxnet import session

    exchange, most = session.AveragedUpdate.exchange, job["optimizer"].pop("clip_norm")

    def shortened(self):
        own = most / (self._optimizer.rescale_grad * context.workers)
        mxnet.gluon.utils.clip_global_norm(self._gradients, own, check_isfinite=False)
        exchange(self)

    session.AveragedUpdate.exchange = shortened


CONTRACT = Contract(
    batches,
    weights,
    faults={FROZEN_LAYER: freeze_last_layer, KEPT_GRADIENT: _keep_back, CLIPPED_APART: _clip_apart},
)
