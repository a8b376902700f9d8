"""Messages as PyTorch sends gradients: collectives over gloo or NCCL, and calls to servers over TensorPipe."""

import collections
import os
import threading

import torch
from torch import distributed
from torch.distributed import rpc

from steptime.frameworks.pytorch.parameter_server import RpcGroup
from steptime.libraries.torch.devices import leave_group, open_device
from steptime.worker.back_end import FED, BackEnd, Message


def open_process_group(job, context):
    """Return the exchange of ``allreduce`` and ``incast``: gloo on CPUs, NCCL on CUDA devices."""
    return ProcessGroupBackEnd(job, context)


def open_rpc(job, context):
    """Return the exchange of ``push_pull``, over TensorPipe."""
    return RpcBackEnd(job, context)


def serve_rpc(job, context):
    """Be a server until all workers have left."""
    torch.set_num_threads(job["threads"])
    _sums["all"] = ServerSums(context.workers)
    RpcGroup(context).leave()


class ProcessGroupBackEnd(BackEnd):
    """The process group that DistributedDataParallel reduces its buckets in."""

    def __init__(self, job, context):
        self._context = context
        self._device = open_device(dict(job, precision="fp32"), context)
        os.environ["GLOO_SOCKET_IFNAME"] = context.interface
        os.environ.setdefault("NCCL_SOCKET_IFNAME", context.interface)
        device = self._device.torch_device
        distributed.init_process_group(
            self._device.backend,
            init_method="tcp://" + context.root_address,
            rank=context.rank,
            world_size=context.workers,
            device_id=device if self._device.backend == "nccl" else None,
        )

    def message(self, operation, count):
        kind = {"allreduce": TorchAllreduce, "incast": TorchIncast}[operation]
        return kind(count, self._context, self._device)

    def facts(self):
        return {"framework_version": torch.__version__, "backend": self._device.backend}

    def close(self):
        distributed.barrier()
        leave_group()

    def abort(self):
        """Leave nothing: the process ends, and the launcher ends the others."""


class TorchAllreduce(Message):
    """A bucket: summed where it lies."""

    becomes = FED

    def __init__(self, count, _, device):
        self._device = device
        self._values = torch.zeros(count, device=device.torch_device)

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        distributed.all_reduce(self._values)
        self._device.wait()

    def result(self):
        return self._values.cpu().numpy()


class TorchIncast(Message):
    """Rows of all workers but the first, which answers with one value."""

    def __init__(self, count, context, device):
        self._rank, self._device = context.rank, device
        rows = context.workers - 1 if context.rank == 0 else 1
        self._rows = torch.zeros((rows, count), device=device.torch_device)
        self._answer = torch.zeros(1, device=device.torch_device)

    def fill(self, values):
        if self._rank:
            self._rows[0].copy_(torch.from_numpy(values))
        else:
            self._rows.zero_()

    def run(self):
        if self._rank:
            distributed.send(self._rows[0], 0)
        else:
            for work in [distributed.irecv(row, rank) for rank, row in enumerate(self._rows, 1)]:
                work.wait()
        distributed.broadcast(self._answer, 0)
        self._device.wait()

    def result(self):
        return None if self._rank else self._rows.cpu().numpy()


_sums = {}
"""Under ``all``: what this server adds up; calls from outside find nothing but a module's own names."""


@rpc.functions.async_execution
def add_up(key, share):
    """Called by workers: give this server a share, and get a future of the sum of all workers' shares."""
    return _sums["all"].take(key, share)


class ServerSums(object):
    """What one server does: adds up what it gets under a key, and answers everybody when the last has come."""

    def __init__(self, workers):
        self._workers = workers
        self._lock = threading.Lock()
        self._totals = {}
        self._waiting = collections.defaultdict(list)

    def take(self, key, share):
        """Add a worker's share; its future is fulfilled when the last worker's has come."""
        future = torch.futures.Future()
        with self._lock:
            self._totals[key] = self._totals[key].add_(share) if key in self._totals else share
            self._waiting[key].append(future)
            if len(self._waiting[key]) < self._workers:
                return future
            total, waiting = self._totals.pop(key), self._waiting.pop(key)
        for each in waiting:
            each.set_result(total)
        return future


class RpcBackEnd(BackEnd):
    """The remote procedure calls of the parameter servers."""

    def __init__(self, job, context):
        torch.set_num_threads(job["threads"])
        torch.set_num_interop_threads(1)
        self._servers = ["server-%d" % server for server in range(context.servers)]
        self._group = RpcGroup(context)
        self._keys = 0

    def message(self, operation, count):
        if operation != "push_pull":
            raise ValueError("%r is no operation of parameter servers" % operation)
        self._keys += 1
        return RpcPushPull(self._keys, count, self._servers)

    def facts(self):
        return {"framework_version": torch.__version__, "backend": "tensorpipe"}

    def close(self):
        self._group.leave()

    def abort(self):
        """Stay until the process ends: leaving waits for the others, who may wait for this worker."""


class RpcPushPull(Message):
    """One row per server; a call to every server at once takes the shares there and brings the sums back."""

    def __init__(self, key, count, servers):
        self._key, self._servers = key, servers
        self._values = torch.zeros(count)
        self._sums = torch.zeros(count)
        self._shares = list(zip(self._values.tensor_split(len(servers)), self._sums.tensor_split(len(servers))))

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        answers = [
            rpc.rpc_async(server, add_up, (self._key, mine)) for server, (mine, _) in zip(self._servers, self._shares)
        ]
        for answer, (_, total) in zip(answers, self._shares):
            total.copy_(answer.wait())

    def result(self):
        return self._sums.numpy()
