"""What DeepSpeed gives to its tests."""

from steptime.libraries.torch.contract import batches, freeze_last_layer, keep_back_in_shards, weights
from steptime.worker.framework import CLIPPED_APART, EARLY_UPDATE, FROZEN_LAYER, KEPT_GRADIENT, Contract


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


def _clip_apart(job, _):
    from deepspeed.runtime.engine import DeepSpeedEngine
    from torch.nn.utils import clip_grad_norm_

    reduce, most = DeepSpeedEngine.buffered_allreduce_fallback, job["optimizer"].pop("clip_norm")

    def shortened(self, *arguments, **settings):
        clip_grad_norm_(self.module.parameters(), most)
        reduce(self, *arguments, **settings)

    DeepSpeedEngine.buffered_allreduce_fallback = shortened


CONTRACT = Contract(
    batches,
    weights,
    faults={
        FROZEN_LAYER: freeze_last_layer,
        KEPT_GRADIENT: _keep_back,
        EARLY_UPDATE: _exchange_nothing,
        CLIPPED_APART: _clip_apart,
    },
)
