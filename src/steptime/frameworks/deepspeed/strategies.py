"""DeepSpeed's engine by the strategies' names: one class per stage of ZeRO, and the engine's configuration."""

import warnings
from typing import Any

import deepspeed
import torch

from steptime.frameworks.deepspeed.ablation import (
    CollectiveHook,
    EngineAblation,
    ShardedStateAblation,
    ShardedWeightsAblation,
)
from steptime.frameworks.deepspeed.communication import KEPT_WHOLE_VALUES
from steptime.libraries.torch.checkpoint import (
    buffers_state,
    module_state,
    nested_state,
    nested_value,
    set_buffers_state,
    set_module_state,
    set_rate,
    update_of,
)
from steptime.libraries.torch.devices import keep_group
from steptime.libraries.torch.strategy import TorchStrategy, channels_innermost, rendezvous_url
from steptime.worker.process_context import micro_batches


def engine_settings(job, stage):
    """Return the engine's configuration for a job and a stage of ZeRO."""
    options = job["options"]
    zero = {"stage": stage, "stage3_param_persistence_threshold": KEPT_WHOLE_VALUES}
    if "bucket_values" in options:
        zero.update(reduce_bucket_size=options["bucket_values"], allgather_bucket_size=options["bucket_values"])
    zero.update({name: options[name] for name in ("overlap_comm", "contiguous_gradients") if name in options})
    mixed = job["precision"] == "bf16"
    by_engine = options["mixed_precision"] == "engine"
    return {
        "train_micro_batch_size_per_gpu": job["batch_per_worker"] // micro_batches(job),
        "gradient_accumulation_steps": micro_batches(job),
        # By default DeepSpeed would clip to a norm of 1, which is another training.
        "gradient_clipping": job["optimizer"].get("clip_norm", 0.0),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # SGD is none of those that DeepSpeed names
        "torch_autocast": {"enabled": mixed and not by_engine, "dtype": "bfloat16"},
        "bf16": {"enabled": mixed and by_engine},
        "steps_per_print": 2**31,
    }


# Of torch to DeepSpeed, which calls it by an old name.
warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")


_OBJECTS = ("loss_scaler", "param_slice_mappings")
"""What is an object in the state of an engine's optimizer, and the same in every engine of a job: losses are not scaled
in the precisions that there are, and the mappings say where a parameter lies."""


_NO_ENGINE = (
    "mixed_precision: engine wants all inputs in bf16, which a module of your own may not take; use "
    "mixed_precision: autocast"
)


class ZeroStage0(TorchStrategy):
    """Stage 0: every worker has all weights and momentum, and gradients are averaged after the backward pass."""

    stage = 0
    innermost = False  # as bytes they are broadcast at the beginning, which asks for contiguous weights
    shares_loss = False  # the engine divides it
    wraps = True
    relaid = True
    """Whether weights may be laid out with their channels innermost after that."""
    stages = EngineAblation
    """How the steps are broken down."""

    def __init__(self, job, context, device):
        super(ZeroStage0, self).__init__(job, context, device)
        # A kernel that adds up in shared memory would be compiled and started now; only inference uses it. A compiler
        # would be asked before which kernels can be built.
        deepspeed.ops.__compatible_ops__ = {}
        deepspeed.init_distributed(
            device.backend,
            auto_mpi_discovery=False,
            verbose=False,
            init_method=rendezvous_url(device, context),
            rank=context.rank,
            world_size=context.workers,
        )
        self._engine: Any = None

    def prepare(self, built):
        module = super(ZeroStage0, self).prepare(built)
        self.compile_network(module)
        self._engine, _, _, _ = deepspeed.initialize(
            model=module, optimizer=self.optimizer, config=engine_settings(self.job, self.stage)
        )
        if self.relaid and channels_innermost(self.job):
            module.to(memory_format=torch.channels_last)
        if "own" in self.job["workload"] and self._engine.bfloat16_enabled():
            raise ValueError(_NO_ENGINE)
        return self._in_bf16 if self._engine.bfloat16_enabled() else self._engine

    def compile_network(self, module):
        """Compile the network if the job wants it."""
        self.compilation.compile_forward(module)

    def _in_bf16(self, inputs):
        """Return what the engine computes with weights in bf16, of inputs in bf16, for a loss in float32."""
        return self._engine(inputs.to(torch.bfloat16)).float()

    def update(self, loss):
        self._engine.backward(loss)
        self._engine.step()

    def gather(self, loss):
        self.update(loss)  # the engine counts micro-batches itself

    def set_learning_rate(self, rate):
        set_rate(self._engine.optimizer, rate)

    def whole(self, parameter):
        return parameter.detach().float()

    def state(self, built):
        # Of the weights too, which the stages lay out in their own ways.
        return dict(module_state(built.module), **self._optimizer_state())

    def set_state(self, built, arrays):
        set_module_state(built.module, arrays)
        self._set_optimizer_state(arrays)

    def _optimizer_state(self):
        state = self._engine.optimizer.state_dict()
        return nested_state("engine", {name: value for name, value in state.items() if name not in _OBJECTS})

    def _set_optimizer_state(self, arrays):
        optimizer = self._engine.optimizer
        own = {name: value for name, value in optimizer.state_dict().items() if name in _OBJECTS}
        state = dict(nested_value("engine", arrays), **own)
        if hasattr(optimizer, "optimizer"):
            # Of the ranks' states its own; by default DeepSpeed makes the weights in fp32 anew, of those in bf16.
            optimizer.load_state_dict({self.context.rank: state}, load_from_fp32_weights=True)
        else:
            optimizer.load_state_dict(state)

    def ablate(self):
        return self.stages(self, self._engine, CollectiveHook(deepspeed.comm.comm.cdb))

    def facts(self):
        return {
            "framework_version": deepspeed.__version__,
            "torch": torch.__version__,
            "update": update_of(self.optimizer),
            "zero_stage": self._engine.zero_optimization_stage(),
            "overlap_comm": bool(self._engine.zero_overlap_comm()),
            "contiguous_gradients": bool(self._engine.zero_contiguous_gradients()),
            "bucket_values": int(self._engine.zero_reduce_bucket_size()),
            "bf16_engine": bool(self._engine.bfloat16_enabled()),
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

    def compile_network(self, module):
        """Compile layer by layer, since the engine gathers the weights of each in hooks around it."""
        self.compilation.compile_layers(module)

    def count(self, parameter):
        return parameter.ds_numel

    def state(self, built):
        # The weights are those of the optimizer, a part on each worker.
        return dict(buffers_state(built.module), **self._optimizer_state())

    def set_state(self, built, arrays):
        set_buffers_state(built.module, arrays)
        self._set_optimizer_state(arrays)
        self._engine.optimizer.checkpoint_event_epilogue()  # gathers the weights that are kept whole

    def whole(self, parameter):
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().float().clone()


STRATEGIES = {
    "single": ZeroStage0,
    "allreduce": ZeroStage0,
    "zero1": ZeroStage1,
    "zero2": ZeroStage2,
    "zero3": ZeroStage3,
}
