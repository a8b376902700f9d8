"""Messages as PyTorch sends gradients: collectives over gloo or NCCL, and calls to servers over TensorPipe."""

import functools
import itertools
from typing import Any, Dict

import torch
from torch import distributed
from torch.distributed import rpc

from steptime.frameworks.pytorch.parameter_server import RpcGroup, SharesOfAll
from steptime.libraries.torch.devices import join_group, leave_group, open_device, set_threads
from steptime.worker.framework import FED, BackEnd, Message


class TorchAllreduce(Message):
    """A bucket: summed where it lies."""

    becomes = FED

    def __init__(self, back_end, count):
        self._device = back_end.device
        self._values = torch.zeros(count, device=self._device.torch_device)

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        distributed.all_reduce(self._values)
        self._device.wait()

    def result(self):
        return self._values.cpu().numpy()


class TorchQueuedAllreduce(TorchAllreduce):
    """A bucket that a device sums behind the one before, without a host that waits in between."""

    def run(self):
        distributed.all_reduce(self._values)  # of NCCL, it returns when the device knows what to do

    def clock(self):
        return self._device.clock()


class TorchIncast(Message):
    """Rows of all workers but the first, which answers with one value."""

    def __init__(self, back_end, count):
        self._rank, self._device = back_end.context.rank, back_end.device
        rows = 1 if self._rank else back_end.context.workers - 1
        self._rows = torch.zeros((rows, count), device=self._device.torch_device)
        self._answer = torch.zeros(1, device=self._device.torch_device)

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


class ProcessGroupBackEnd(BackEnd):
    """The process group that DistributedDataParallel reduces its buckets in: gloo on CPUs, NCCL on CUDA devices."""

    messages = {"allreduce": TorchAllreduce, "allreduce_queued": TorchQueuedAllreduce, "incast": TorchIncast}

    def __init__(self, job, context):
        self.context = context
        self.device = open_device(dict(job, precision="fp32"), context)
        join_group(self.device, context)

    def facts(self):
        return dict(self.device.facts(), framework_version=torch.__version__, backend=self.device.backend)

    def close(self):
        distributed.barrier()
        leave_group()


_sums: Dict[Any, Any] = {}
"""By key, the ``SharesOfAll`` that this server adds up; calls from outside find nothing but a module's own names."""


@rpc.functions.async_execution
def add_up(key, workers, share):
    """Called by workers: give this server a share, and get a future of the sum of all workers' shares."""
    return _sums.setdefault(key, SharesOfAll(workers)).take(share, lambda total: total)


def serve_rpc(job, context):
    """Be a server until all workers have left."""
    torch.set_num_threads(job["threads"])
    RpcGroup(context).leave()


class RpcPushPull(Message):
    """One row per server; a call to every server at once takes the shares there and brings the sums back."""

    def __init__(self, back_end, count):
        self._key, self._servers, self._workers = back_end.next_key(), back_end.servers, back_end.workers
        self._values = torch.zeros(count)
        self._sums = torch.zeros(count)
        parts = len(self._servers)
        self._shares = list(zip(self._values.tensor_split(parts), self._sums.tensor_split(parts)))

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        answers = [
            rpc.rpc_async(server, add_up, (self._key, self._workers, mine))
            for server, (mine, _) in zip(self._servers, self._shares)
        ]
        for answer, (_, total) in zip(answers, self._shares):
            total.copy_(answer.wait())

    def result(self):
        return self._sums.numpy()


class RpcBackEnd(BackEnd):
    """The remote procedure calls of the parameter servers, over TensorPipe."""

    messages = {"push_pull": RpcPushPull}

    def __init__(self, job, context):
        set_threads(job)
        self.workers = context.workers
        self.servers = ["server-%d" % server for server in range(context.servers)]
        self.next_key = functools.partial(next, itertools.count())
        self._group = RpcGroup(context)

    def facts(self):
        return {"framework_version": torch.__version__, "backend": "tensorpipe"}

    def close(self):
        self._group.leave()
