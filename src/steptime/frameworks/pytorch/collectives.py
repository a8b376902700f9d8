"""Several workers that meet in torch's own collectives: DistributedDataParallel, or FSDP2."""

import inspect
import os

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from steptime.frameworks.pytorch.buckets import BucketStages
from steptime.frameworks.pytorch.grouping import sharding_groups
from steptime.frameworks.pytorch.shards import ShardStages
from steptime.worker.sessions.torch_devices import leave_group
from steptime.worker.sessions.torch_strategy import TorchStrategy

_OWN_BUCKET_MB = 25.0
"""Of DDP, which then closes its first bucket at 1 MiB already, so that sending starts early."""


class _Collective(TorchStrategy):
    def __init__(self, job, place, device):
        super().__init__(job, place, device)
        os.environ["GLOO_SOCKET_IFNAME"] = place.interface
        os.environ.setdefault("NCCL_SOCKET_IFNAME", place.interface)
        distributed.init_process_group(
            device.backend,
            init_method="tcp://" + place.root_address,
            rank=place.rank,
            world_size=place.workers,
            device_id=device.torch_device if device.backend == "nccl" else None,
        )

    def facts(self):
        return {
            "update": self.way,
            "backend": self.device.backend,
            "interface": self.place.interface,
            "running_statistics": "per worker",
        }

    def part(self):
        """Leave the other workers; without it, threads of the communication abort the process at its exit."""
        leave_group()


class AllReduce(_Collective):
    """DistributedDataParallel: gradients are averaged in buckets during the backward pass."""

    def prepare(self, built):
        module, device = super().prepare(built), self.device.torch_device
        self._module = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=_bucket_size(self.job["options"]["bucket_mb"]),
            gradient_as_bucket_view=True,  # gradients are reduced where they lie
            **_without_buffer_exchange(),
        )
        return self._module

    def take_apart(self):
        return BucketStages(self, self._module)

    def facts(self):
        return dict(super().facts(), bucket_mb=self.job["options"]["bucket_mb"])


def _bucket_size(asked_mb):
    """Return what to ask DDP for: None for its own size, since its small first bucket goes with any that is asked."""
    return None if asked_mb == _OWN_BUCKET_MB else asked_mb


def _without_buffer_exchange():
    """Running statistics are not used in training; sending rank 0's to all in every step would be for nothing."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


class FullySharded(_Collective):
    """FSDP2: parameters, gradients and momentum are split over the workers.

    It shards parameters that are contiguous only; images may have their channels innermost nevertheless. The fused
    update takes ordinary tensors only; for shards, one call for all of them is the next best.
    """

    innermost = False
    way = "foreach"

    def prepare(self, built):
        from torch.distributed.fsdp import fully_shard

        self._module = module = built.module
        mesh = distributed.init_device_mesh(self.device.torch_device.type, (self.place.workers,))
        groups = sharding_groups(module)
        for group in groups:
            fully_shard(group, mesh=mesh)
        self._groups = len(groups)
        # The root has the parameters of no group, and gathers for all.
        fully_shard(module, mesh=mesh)
        return super().prepare(built)  # an optimizer of the shards

    def take_apart(self):
        return ShardStages(self, self._module)

    def whole(self, parameter):
        return parameter.detach().full_tensor()

    def facts(self):
        return dict(super().facts(), sharded_groups=self._groups)
