"""PyTorch's own strategies: one worker, DistributedDataParallel, FSDP2, and workers of parameter servers."""

import contextlib
import inspect
import itertools
from collections import Counter

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from steptime.frameworks.pytorch.communication import bucket_cap_mb, sharding_groups
from steptime.frameworks.pytorch.ddp_ablation import BucketAblation
from steptime.frameworks.pytorch.parameter_server import AsynchronousParameterServers, ParameterServers
from steptime.libraries.torch.checkpoint import update_of
from steptime.libraries.torch.devices import join_group, leave_group
from steptime.libraries.torch.strategy import TorchStrategy
from steptime.worker.process_context import micro_batches


def sharded_children(module, smallest):
    """Return lists of neighbouring children of ``module``, layers or whole blocks, that FSDP gathers together.

    Each has at least ``smallest`` parameters. A network of a single group gives none, and is gathered at once by the
    root; so are children with a weight that another one has too, which must not lie in two groups.
    """
    held = Counter(id(parameter) for child in module for parameter in child.parameters())
    children = [child for child in module if all(held[id(each)] == 1 for each in child.parameters())]
    values = [sum(parameter.numel() for parameter in child.parameters()) for child in children]
    groups = sharding_groups(values, smallest)
    return [[children[place] for place in group] for group in groups] if len(groups) > 1 else []


def own_units(module, smallest):
    """Return the parts of a user's module that FSDP gathers one by one, each in a list of its own.

    These are the items of its lists of modules, and other parts that hold no such list, with ``smallest`` parameters or
    more; the root gathers the rest, and parameters that two parts share.
    """
    held = Counter(id(parameter) for each in module.modules() for parameter in each.parameters(recurse=False))
    found = []

    def look_into(part):
        for child in part.children():
            own = list(child.parameters())
            holds_list = any(isinstance(each, _LISTS) and len(each) > 1 for each in child.modules())
            if holds_list or isinstance(child, _LISTS):
                look_into(child)
            elif sum(each.numel() for each in own) >= smallest and all(held[id(each)] == 1 for each in own):
                found.append([child])

    look_into(module)
    return found if len(found) > 1 else []


_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)


def _require_shardable(module):
    """Raise ValueError where FSDP2 cannot shard a parameter of a user's module."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 0:
            raise ValueError(
                "fsdp cannot shard the parameter %s, which is a single number without an axis; make it one of the "
                "shape (1,), or leave fsdp out" % name
            )
        if not parameter.is_contiguous():
            raise ValueError(
                "fsdp cannot shard the parameter %s, which is not contiguous; make it so by .contiguous(), or leave "
                "fsdp out" % name
            )


class _ProcessGroupStrategy(TorchStrategy):
    def __init__(self, job, context, device):
        super().__init__(job, context, device)
        join_group(device, context)

    def facts(self):
        return {
            "update": update_of(self.optimizer),
            "backend": self.device.backend,
            "interface": self.context.interface,
            "running_statistics": "per worker",
        }

    def leave(self):
        """Leave the other workers; without it, threads of the communication abort the process at its exit."""
        leave_group()


class DistributedDataParallelStrategy(_ProcessGroupStrategy):
    """DistributedDataParallel: gradients are averaged in buckets during the backward pass."""

    wraps = True

    def prepare(self, built):
        self.compilation.compile_forward(built.module)
        module, device, options = super().prepare(built), self.device.torch_device, self.job["options"]
        self._module = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=bucket_cap_mb(options["bucket_mb"]),
            gradient_as_bucket_view=options["gradients"] == "bucket_view",
            # Torch fails where a first step does not exchange with every backward pass.
            static_graph=options["static_graph"] and micro_batches(self.job) == 1,
            **_without_buffer_exchange(),
            **_batched_copy(options["gradients"]),
        )
        self._keeps_gradients = options["gradients"] == "bucket_view"
        if options["compression"] == "bf16" and device.type == "cpu":
            raise RuntimeError(_NO_BF16_HOOK)
        if options["compression"] != "none":
            self._module.register_comm_hook(None, _COMPRESSIONS[options["compression"]])
        return self._module

    def alone(self):
        return self._module.no_sync()

    def drop_gradients(self):
        """Give the gradients' memory back, or set it to zero where it is that of the buckets and is to stay so."""
        self.optimizer.zero_grad(set_to_none=not self._keeps_gradients)

    def ablate(self):
        """Return the ablation; None with a compression, which is a hook itself and leaves no other in force."""
        return BucketAblation(self, self._module) if self.job["options"]["compression"] == "none" else None

    def facts(self):
        seen = self._module._get_ddp_logging_data()  # noqa: SLF001 - torch has no other way to its settings
        return dict(
            super().facts(),
            bucket_mb=self.job["options"]["bucket_mb"],
            gradient_as_bucket_view=bool(seen["gradient_as_bucket_view"]),
            batched_grad_copy=bool(getattr(self._module, "batched_grad_copy", False)),
            static_graph=bool(self._module.static_graph),
            communication_hook=self.job["options"]["compression"],
        )


_NO_BF16_HOOK = "compression: bf16 is torch's hook over NCCL only; use compression: fp16 on processors, or none"
_COMPRESSIONS = {"bf16": default_hooks.bf16_compress_hook, "fp16": default_hooks.fp16_compress_hook}


def _batched_copy(gradients):
    """Return the argument of DDP that copies all gradients of a bucket at once.

    Raises RuntimeError where torch does not have it (before 2.13).
    """
    if gradients != "batched_copy":
        return {}
    if "batched_grad_copy" not in inspect.signature(DistributedDataParallel).parameters:
        raise RuntimeError(
            "gradients: batched_copy needs a DistributedDataParallel with batched_grad_copy, which torch %s "
            "lacks; use gradients: copy or bucket_view" % torch.__version__
        )
    return {"batched_grad_copy": True}


def _without_buffer_exchange():
    """Running statistics are not used in training; sending rank 0's to all in every step would be for nothing."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


class _Stretch(torch.nn.Module):
    """Neighbouring layers or blocks as one."""

    def __init__(self, parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, values):
        for part in self.parts:
            values = part(values)
        return values


class FullyShardedStrategy(_ProcessGroupStrategy):
    """FSDP2: parameters, gradients and momentum are split over the workers.

    It shards parameters that are contiguous only; images may have their channels innermost nevertheless. The fused
    update takes ordinary tensors only; for shards, one call for all of them is the next best.
    """

    innermost = False
    wraps = True

    def __init__(self, job, context, device):
        super().__init__(job, context, device)
        self.autocast = job["options"]["mixed_precision"] == "autocast"

    def prepare(self, built):
        from torch.distributed.fsdp import fully_shard

        options = self.job["options"]
        module = built.module
        mesh = distributed.init_device_mesh(self.device.torch_device.type, (self.context.workers,))
        if "own" in self.job["workload"]:
            _require_shardable(module)
            groups = own_units(module, options["group_values"])
            if self.compilation.wanted:
                self._compile_own(module, groups)
        else:
            groups = sharded_children(module, options["group_values"])
            if self.compilation.wanted:
                module, groups = self._compiled_stretches(module, groups)
        self._module = module
        settings = dict(_RESHARDING[options["reshard_after_forward"]], **self._precision())
        self._units = [fully_shard(group, mesh=mesh, **settings)[0] for group in groups]
        # The root has the parameters of no group, and gathers for all.
        self._units.append(fully_shard(module, mesh=mesh, **settings))
        self._prefetch(options["prefetch"])
        super().prepare(built)  # an optimizer of the shards
        return module

    def _compiled_stretches(self, module, groups):
        """Return the network of ``module`` in compiled stretches, and those of the ``groups`` among them.

        FSDP's hooks lie between the stretches. Without groups all is one.
        """
        members = {id(child): group for group in groups for child in group}
        stretches = [
            _Stretch(list(children))
            for _, children in itertools.groupby(module, lambda child: id(members.get(id(child))))
        ]
        for stretch in stretches:
            self.compilation.compile_forward(stretch)
        network = torch.nn.Sequential(*stretches)
        return network, [[each] for each in stretches if id(each.parts[0]) in members]

    def _compile_own(self, module, groups):
        """Compile a user's module: its parts that FSDP gathers by themselves, other layers, and what lies between."""
        parts = [part for group in groups for part in group]
        inside = {id(each) for part in parts for each in part.modules()}
        for part in parts:
            self.compilation.compile_forward(part)
        for each in module.modules():
            if id(each) not in inside and not list(each.children()) and list(each.parameters()):
                self.compilation.compile_forward(each)
        self.compilation.compile_forward(module)

    def _precision(self):
        """Return FSDP's own policy under bf16: weights are gathered in bf16, gradients are added up in float32."""
        if self.autocast or self.job["precision"] != "bf16":
            return {}
        if any(layer["kind"] == "batch_norm" for layer in self.job["workload"]["layers"]):
            raise RuntimeError(_NO_BATCH_NORM)
        from torch.distributed.fsdp import MixedPrecisionPolicy

        # The loss is computed from outputs in float32, as autocast computes it.
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
        )
        self.weights_type = policy.param_dtype
        return {"mp_policy": policy}

    def _prefetch(self, ahead):
        """Let each group gather the next ``ahead`` ones too, in the order of either pass; FSDP's own order has one."""
        groups = self._units[:-1]
        for place, unit in enumerate(groups):
            if ahead:
                unit.set_modules_to_forward_prefetch(groups[place + 1 : place + 1 + ahead])
                unit.set_modules_to_backward_prefetch(groups[max(0, place - ahead) : place][::-1])

    def ablate(self):
        """Return the ablation; None if torch is too old to let anybody else send for FSDP2 (before 2.8)."""
        try:
            from steptime.frameworks.pytorch.fsdp_ablation import ShardAblation
        except ImportError:
            return None
        return ShardAblation(self, self._module)

    @contextlib.contextmanager
    def alone(self):
        self._module.set_requires_gradient_sync(False)  # of all groups
        yield
        self._module.set_requires_gradient_sync(True)

    def evaluated(self):
        # A forward pass without a backward pass leaves weights of other workers where the shards of this one were.
        for unit in self._units:
            unit.reshard()

    def whole(self, parameter):
        return parameter.detach().full_tensor()

    def facts(self):
        options = self.job["options"]
        return dict(
            super().facts(),
            sharded_groups=len(self._units) - 1,
            reshard_after_forward=options["reshard_after_forward"],
            prefetch=options["prefetch"],
            policy=None if self.autocast or self.job["precision"] != "bf16" else "bfloat16",
        )


_NO_BATCH_NORM = (
    "mixed_precision: policy gives batch normalisation weights in bf16 beside running statistics in float32, which "
    "torch refuses; use mixed_precision: autocast"
)
_RESHARDING = {"default": {}, "yes": {"reshard_after_forward": True}, "no": {"reshard_after_forward": False}}
"""FSDP's own default gives the weights of every group back after its forward pass, and keeps those of the root."""


STRATEGIES = {
    "single": TorchStrategy,
    "allreduce": DistributedDataParallelStrategy,
    "fsdp": FullyShardedStrategy,
    "ps_sync": ParameterServers,
    "ps_async": AsynchronousParameterServers,
}
