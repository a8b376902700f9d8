"""What Horovod with PyTorch gives to its tests."""

from steptime.libraries.torch.contract import batches, clip_apart, freeze_last_layer, weights
from steptime.worker.framework import CLIPPED_APART, FROZEN_LAYER, KEPT_GRADIENT, Contract


def _keep_back(*_):
    from steptime.frameworks.horovod_pytorch import strategies

    prepare = strategies.HorovodAverage.prepare

    def prepared(self, built):
        module = prepare(self, built)
        start, last = self.optimizer._allreduce_grad_async, list(module.parameters())[-1]

        def begin(parameter):
            if parameter is last:
                row, undone = strategies.InnermostChannels.compress(parameter.grad)
                return (lambda: row), undone
            return start(parameter)

        self.optimizer._allreduce_grad_async = begin
        return module

    strategies.HorovodAverage.prepare = prepared


CONTRACT = Contract(
    batches,
    weights,
    faults={FROZEN_LAYER: freeze_last_layer, KEPT_GRADIENT: _keep_back, CLIPPED_APART: clip_apart},
)
