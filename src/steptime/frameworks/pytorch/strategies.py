"""PyTorch's own strategies: one worker, DistributedDataParallel, FSDP2, and workers of parameter servers."""

import inspect

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from steptime.frameworks.pytorch.communication import bucket_cap_mb, sharding_groups
from steptime.frameworks.pytorch.ddp_ablation import BucketAblation
from steptime.frameworks.pytorch.parameter_server import AsynchronousParameterServers, ParameterServers
from steptime.libraries.torch.devices import join_group, leave_group
from steptime.libraries.torch.strategy import TorchStrategy


def sharded_children(module):
    """Return lists of neighbouring children of ``module``, layers or whole blocks, that FSDP gathers together.

    A network of a single group gives none, and is gathered at once by the root.
    """
    children = list(module)
    groups = sharding_groups([sum(parameter.numel() for parameter in child.parameters()) for child in children])
    return [[children[place] for place in group] for group in groups] if len(groups) > 1 else []


class _ProcessGroupStrategy(TorchStrategy):
    def __init__(self, job, context, device):
        super().__init__(job, context, device)
        join_group(device, context)

    def facts(self):
        return {
            "update": self.way,
            "backend": self.device.backend,
            "interface": self.context.interface,
            "running_statistics": "per worker",
        }

    def leave(self):
        """Leave the other workers; without it, threads of the communication abort the process at its exit."""
        leave_group()


class DistributedDataParallelStrategy(_ProcessGroupStrategy):
    """DistributedDataParallel: gradients are averaged in buckets during the backward pass."""

    def prepare(self, built):
        module, device = super().prepare(built), self.device.torch_device
        self._module = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=bucket_cap_mb(self.job["options"]["bucket_mb"]),
            gradient_as_bucket_view=True,  # gradients are reduced where they lie
            **_without_buffer_exchange(),
        )
        return self._module

    def ablate(self):
        return BucketAblation(self, self._module)

    def facts(self):
        return dict(super().facts(), bucket_mb=self.job["options"]["bucket_mb"])


def _without_buffer_exchange():
    """Running statistics are not used in training; sending rank 0's to all in every step would be for nothing."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


class FullyShardedStrategy(_ProcessGroupStrategy):
    """FSDP2: parameters, gradients and momentum are split over the workers.

    It shards parameters that are contiguous only; images may have their channels innermost nevertheless. The fused
    update takes ordinary tensors only; for shards, one call for all of them is the next best.
    """

    innermost = False
    way = "foreach"

    def prepare(self, built):
        from torch.distributed.fsdp import fully_shard

        self._module = module = built.module
        mesh = distributed.init_device_mesh(self.device.torch_device.type, (self.context.workers,))
        groups = sharded_children(module)
        for group in groups:
            fully_shard(group, mesh=mesh)
        self._groups = len(groups)
        # The root has the parameters of no group, and gathers for all.
        fully_shard(module, mesh=mesh)
        return super().prepare(built)  # an optimizer of the shards

    def ablate(self):
        """Return the ablation; None where torch is too old to let anybody else send for FSDP2 (before 2.8)."""
        try:
            from steptime.frameworks.pytorch.fsdp_ablation import ShardAblation
        except ImportError:
            return None
        return ShardAblation(self, self._module)

    def whole(self, parameter):
        return parameter.detach().full_tensor()

    def facts(self):
        return dict(super().facts(), sharded_groups=self._groups)


STRATEGIES = {
    "single": TorchStrategy,
    "allreduce": DistributedDataParallelStrategy,
    "fsdp": FullyShardedStrategy,
    "ps_sync": ParameterServers,
    "ps_async": AsynchronousParameterServers,
}
