"""What DeepSpeed gives to its tests."""

from steptime.libraries.torch.contract import batches, freeze_last_layer, keep_back_in_shards, weights
from steptime.worker.contract import EARLY_UPDATE, FROZEN_LAYER, KEPT_GRADIENT, Contract


def _keep_back(job, context):
    if job["strategy"] != "allreduce":
        keep_back_in_shards(job, context)
        return
    from deepspeed.runtime.engine import DeepSpeedEngine

    reduce = DeepSpeedEngine.buffered_allreduce_fallback

    def partly(self, *arguments, **settings):
        last = list(self.module.parameters())[-1]
        own = last.grad.clone()
        reduce(self, *arguments, **settings)
        last.grad.copy_(own)

    DeepSpeedEngine.buffered_allreduce_fallback = partly


def _exchange_nothing(job, _):
    """Leave out the exchange, which the engine makes under ``single`` too."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    DeepSpeedEngine.buffered_allreduce_fallback = lambda *_, **__: None
    job["strategy"] = "allreduce"


CONTRACT = Contract(
    batches,
    weights,
    faults={FROZEN_LAYER: freeze_last_layer, KEPT_GRADIENT: _keep_back, EARLY_UPDATE: _exchange_nothing},
)
