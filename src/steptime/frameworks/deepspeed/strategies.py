"""DeepSpeed's engine by the strategies' names: one class per stage of ZeRO, and the engine's configuration."""

import warnings

import deepspeed
import torch

from steptime.frameworks.deepspeed.ablation import (
    CollectiveHook,
    EngineAblation,
    ShardedStateAblation,
    ShardedWeightsAblation,
)
from steptime.frameworks.deepspeed.communication import KEPT_WHOLE_VALUES
from steptime.libraries.torch.devices import keep_group, rendezvous_url
from steptime.libraries.torch.strategy import TorchStrategy, channels_innermost


def engine_settings(job, stage):
    """Return the engine's configuration for a job and a stage of ZeRO."""
    zero = {"stage": stage, "stage3_param_persistence_threshold": KEPT_WHOLE_VALUES}
    if "bucket_values" in job["options"]:
        zero.update(
            reduce_bucket_size=job["options"]["bucket_values"], allgather_bucket_size=job["options"]["bucket_values"]
        )
    return {
        "train_micro_batch_size_per_gpu": job["batch_per_worker"],
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,  # 1 would be DeepSpeed's default, and another training
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # SGD is none of those that DeepSpeed names
        "torch_autocast": {"enabled": job["precision"] == "bf16", "dtype": "bfloat16"},
        "steps_per_print": 2**31,
    }


# Of torch to DeepSpeed, which calls it by an old name.
warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")


class ZeroStage0(TorchStrategy):
    """Stage 0: every worker has all weights and momentum, and gradients are averaged after the backward pass."""

    stage = 0
    innermost = False  # as bytes they are broadcast at the beginning, which asks for contiguous weights
    relaid = True
    """Whether weights may be laid out with their channels innermost after that."""
    stages = EngineAblation
    """How the steps are taken apart."""

    def __init__(self, job, context, device):
        super(ZeroStage0, self).__init__(job, context, device)
        # A kernel that adds up in shared memory would be compiled and started now; only inference uses it.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(
            device.backend,
            auto_mpi_discovery=False,
            verbose=False,
            init_method=rendezvous_url(device, context),
            rank=context.rank,
            world_size=context.workers,
        )
        self._engine = None

    def prepare(self, built):
        module = super(ZeroStage0, self).prepare(built)
        self._engine, _, _, _ = deepspeed.initialize(
            model=module, optimizer=self.optimizer, config=engine_settings(self.job, self.stage)
        )
        if self.relaid and channels_innermost(self.job):
            module.to(memory_format=torch.channels_last)
        return self._engine

    def update(self, loss):
        self._engine.backward(loss)
        self._engine.step()

    def ablate(self):
        return self.stages(self, self._engine, CollectiveHook(deepspeed.comm.comm.cdb))

    def facts(self):
        return {
            "framework_version": deepspeed.__version__,
            "torch": torch.__version__,
            "update": self.way,
            "zero_stage": self._engine.zero_optimization_stage(),
            "gradient_clipping": self._engine.gradient_clipping(),
            "backend": self.device.backend,
            "interface": self.context.interface,
            "running_statistics": "per worker",
        }

    def leave(self):
        """Leave the other workers; without it, threads of the communication abort the process at its exit."""
        keep_group()
        self._engine.destroy()
        deepspeed.comm.destroy_process_group()

    def abort(self):
        """Stay until the process ends: leaving waits for the others, who may wait for this worker."""


class ZeroStage1(ZeroStage0):
    """Stage 1: each worker updates a part of the weights, whose momentum it alone has, and gives it to the others.

    The weights are laid out anew, in one row, in which channels cannot be innermost.
    """

    stage = 1
    relaid = False
    stages = ShardedStateAblation


class ZeroStage2(ZeroStage1):
    """Stage 2: each worker also gets no more than its own part of the gradients."""

    stage = 2


class ZeroStage3(ZeroStage1):
    """Stage 3: each worker keeps a part of the weights only, and gathers those of a layer when it comes to it."""

    stage = 3
    stages = ShardedWeightsAblation

    def count(self, parameter):
        return parameter.ds_numel

    def whole(self, parameter):
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()


STRATEGIES = {
    "single": ZeroStage0,
    "allreduce": ZeroStage0,
    "zero1": ZeroStage1,
    "zero2": ZeroStage2,
    "zero3": ZeroStage3,
}
