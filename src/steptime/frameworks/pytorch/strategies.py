"""How several workers train one network: nothing to do, DistributedDataParallel, or FSDP2."""

import inspect
import os

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

# Smaller groups of parameters are gathered together, since a gathering costs its latency whatever its size.
_SMALLEST_GROUP = 1000000


def wrap(job, place, device, module):
    """Return ``(module, facts)``: the module as the job's strategy trains it, after the workers have met."""
    if job["strategy"] == "single":
        return module, {}
    _meet(place, device)
    wrapped, facts = {"allreduce": _allreduce, "fsdp": _fsdp}[job["strategy"]](job, place, device, module)
    facts.update(backend=device.backend, interface=place.interface)
    return wrapped, facts


def part():
    """Leave the other workers; without it, threads of the communication abort the process at its exit."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def whole(value):
    """Return a parameter as an ordinary tensor, gathering its shards; every worker must call it."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _meet(place, device):
    os.environ["GLOO_SOCKET_IFNAME"] = place.interface
    os.environ.setdefault("NCCL_SOCKET_IFNAME", place.interface)
    distributed.init_process_group(
        device.backend,
        init_method="tcp://" + place.root_address,
        rank=place.rank,
        world_size=place.workers,
        device_id=device.torch_device if device.backend == "nccl" else None,
    )


def _allreduce(job, _, device, module):
    bucket_mb = job["options"]["bucket_mb"]
    wrapped = DistributedDataParallel(
        module,
        device_ids=[device.torch_device.index] if device.torch_device.type == "cuda" else None,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,  # gradients are reduced where they lie
        **_without_buffer_exchange(),
    )
    return wrapped, {"bucket_mb": bucket_mb, "running_statistics": "per worker"}


def _without_buffer_exchange():
    """Running statistics are not used in training; sending rank 0's to all in every step would be for nothing."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def _fsdp(_, place, device, module):
    from torch.distributed.fsdp import fully_shard

    mesh = distributed.init_device_mesh(device.torch_device.type, (place.workers,))
    groups = sharding_groups(module)
    for group in groups:
        fully_shard(group, mesh=mesh)
    # The root has the parameters of no group, and gathers for all.
    return fully_shard(module, mesh=mesh), {"sharded_groups": len(groups), "running_statistics": "per worker"}


def sharding_groups(module):
    """Return lists of neighbouring children of ``module``, each with parameters enough to be gathered by itself.

    Children are layers or whole blocks. A group starts with a child that has parameters, because what follows without
    any may overwrite its input, which FSDP forbids at the entry of a group. A rest at the end that is too small joins
    the group before it; a network smaller than one group gives none, and is gathered at once by the root.
    """
    groups, current, size = [], [], 0
    for child in module:
        own = sum(parameter.numel() for parameter in child.parameters())
        if own and size >= _SMALLEST_GROUP:
            groups.append(current)
            current, size = [], 0
        current.append(child)
        size += own
    if size >= _SMALLEST_GROUP or not groups:
        groups.append(current)
    else:
        groups[-1] += current
    return groups if len(groups) > 1 else []
