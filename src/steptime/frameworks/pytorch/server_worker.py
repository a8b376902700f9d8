"""A worker of parameter servers: one call per server and step takes the gradients there and brings the weights."""

import collections
import functools
import time

import torch
from torch.distributed import rpc

from steptime.frameworks.pytorch import parameter_server
from steptime.frameworks.pytorch.parameter_server import RpcGroup, ServerShards
from steptime.libraries.torch.ablation import TorchAblation
from steptime.libraries.torch.strategy import TorchStrategy, channels_innermost


class ParameterServerAblation(TorchAblation):
    """The stages of a worker that sends its gradients to servers, which update."""

    update_marks = ("input", "forward", "backward", "exchange")

    def __init__(self, strategy, sizes):
        """Take the steps of ``strategy`` apart, which sends rows of gradients of these ``sizes`` in bytes."""
        super(ParameterServerAblation, self).__init__(strategy)
        self._sizes = sizes
        self.pieces = []

    def updates(self):
        return {"backward": self.backward, "exchange": self.strategy.update}

    def backward(self, loss):
        """Compute gradients, and set them to zero as training does, since the next ones are added to them."""
        loss.backward()
        self.strategy.forget()

    def communication(self):
        return self.strategy.send

    def marked_update(self, loss, mark):
        loss.backward()
        mark("backward")
        ready, done = time.monotonic(), {}

        def watch(server, answer):
            done[server] = time.monotonic()
            return answer.value()

        self.strategy.send(watch)
        mark("exchange")
        self.strategy.forget()
        for server, size in enumerate(self._sizes):
            self.pieces.append(["server %d" % server, size, ready, done[server]])


class ParameterServers(TorchStrategy):
    """Parameters and their gradients lie in one row of values per server, and travel as such.

    A tensor is sent with all the memory that it lies in, so that every row has its own.
    """

    def __init__(self, job, context, device):
        super(ParameterServers, self).__init__(job, context, device)
        self._pieces = ServerShards(
            job["workload"]["layers"], context.servers, job["options"]["sharding"], channels_innermost(job)
        )
        self._servers = ["server-%d" % server for server in range(context.servers)]
        self._weights = [torch.empty(size, device=device.torch_device) for size in self._pieces.sizes]
        self._gradients = [torch.zeros_like(row) for row in self._weights]
        self._late = collections.Counter()
        self._group = RpcGroup(context)

    def prepare(self, built):
        parameters = built.parameters()
        for server, (weights, gradients) in enumerate(zip(self._weights, self._gradients)):
            into = self._pieces.views(server, gradients)
            for name, view in self._pieces.views(server, weights).items():
                parameters[name].data = view.copy_(parameters[name].data)
                parameters[name].grad = into[name]  # the backward pass adds to it
        return built.module

    def update(self, loss):
        loss.backward()
        self.send()
        self.forget()

    def send(self, watch=None):
        """Give the servers the gradients that are there, and take their weights.

        ``watch``, if there is one, is called with the server's number and its future when an answer comes; what it
        returns stands for the answer.
        """
        answers = [
            rpc.rpc_async(server, parameter_server.exchange, (self.context.rank, gradient.cpu()))
            for server, gradient in zip(self._servers, self._gradients)
        ]
        if watch is not None:
            answers = [answer.then(functools.partial(watch, server)) for server, answer in enumerate(answers)]
        late = 0
        for row, answer in zip(self._weights, answers):
            weights, updates = answer.wait()
            row.copy_(weights)
            late = max(late, updates)
        self._late[late] += 1

    def forget(self):
        """Set all gradients to zero, which the answers say have been read."""
        torch._foreach_zero_(self._gradients)

    def ablate(self):
        return ParameterServerAblation(self, [row.numel() * row.element_size() for row in self._gradients])

    def facts(self):
        return {
            "update": "on the servers, fused",
            "backend": "tensorpipe",
            "interface": self.context.interface,
            "sharding": self.job["options"]["sharding"],
            "values_per_server": self._pieces.sizes,
            "running_statistics": "per worker",
        }

    def leave(self):
        self._group.leave()

    def abort(self):
        """Stay until the process ends: leaving waits for the others, who may wait for this worker."""


class AsynchronousParameterServers(ParameterServers):
    """Nobody waits for anybody, so that updates may be late: of several servers, the latest counts."""

    def staleness(self):
        counts, self._late = dict(self._late), collections.Counter()
        return counts
