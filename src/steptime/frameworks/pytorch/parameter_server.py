"""Parameter servers over torch's remote procedure calls (TensorPipe): the servers' part, and then the workers'.

A server holds a shard of the weights, and updates it once with all workers' gradients, or with each gradient at once.
A worker makes one call per server and step, which takes the gradients there and brings the weights.
"""

import collections
import functools
import os
import threading
import warnings
from typing import Any, Dict, Tuple

import torch
from torch.distributed import TCPStore, rpc

from steptime.frameworks.pytorch.communication import ServerShards
from steptime.frameworks.pytorch.parameter_server_ablation import ParameterServerAblation
from steptime.libraries.torch.checkpoint import (
    is_linear,
    module_state,
    open_optimizer,
    optimizer_state,
    set_module_state,
    set_optimizer_state,
    set_rate,
    update_option,
)
from steptime.libraries.torch.devices import set_threads
from steptime.libraries.torch.own_module import first_weights
from steptime.libraries.torch.strategy import TorchStrategy, channels_innermost, server_url

_LEAST_LENGTH = 1e-6
"""Of a gradient, as torch's own clipping has it."""


# A call ends when its answer comes, or when the launcher ends the launch: of a death it knows before we do.
_NEVER_S = 1e6


class RpcGroup(object):
    """All workers and servers of a launch, from the constructor until ``leave``."""

    def __init__(self, context):
        """Meet the others; the first worker keeps the list of who is there, at the root address."""
        os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = context.interface
        everybody = context.workers + context.servers
        options = rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=max(2, everybody), rpc_timeout=_NEVER_S, init_method=server_url(context)
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed")  # torch's own doing
            rpc.init_rpc(
                context.name,
                rank=context.rank + (context.workers if context.role == "server" else 0),
                world_size=everybody,
                rpc_backend_options=options,
            )
        self._list = TCPStore(context.root_host, context.root_port, wait_for_workers=False)
        names = ["worker-%d" % rank for rank in range(context.workers)]
        names += ["server-%d" % rank for rank in range(context.servers)]
        self._name, self._keeper, self._others = context.name, names[0], names[1:]

    def leave(self):
        """Wait until everybody has finished, answering calls meanwhile; the keeper of the list goes last.

        Torch's own leave-taking reads the list and fails now and then where the list is gone.
        """
        rpc.shutdown()
        if self._name == self._keeper:
            self._list.wait(self._others)
        else:
            self._list.set(self._name, "left")


_held: Dict[Any, Any] = {}
"""Under ``shard``: what this server holds; remote calls find nothing but the names of a module."""


def serve_shard(job, context):
    """Be one server until all workers have left; return how many threads it computes with."""
    set_threads(job)
    kind = {"ps_sync": SynchronousShard, "ps_async": AsynchronousShard}[job["strategy"]]
    weights, parameters_in = _first_weights(job, context)
    _held["shard"] = kind(weights, parameters_in, job["optimizer"], update_option(job), context)
    # No worker can call before all are here, so that no gradient comes to a server without weights.
    RpcGroup(context).leave()
    return {"threads": torch.get_num_threads()}


@rpc.functions.async_execution
def exchange(worker, gradient, rate=None):
    """Called by workers: give this server a gradient, and get a future of ``(weights, staleness)``.

    Args:
        worker: the caller's rank.
        gradient: float32, as long as the piece; the server keeps it.
        rate: the learning rate with which it is applied; None for that of the gradient before.
    """
    return _held["shard"].take(worker, gradient, rate)


@rpc.functions.async_execution
def squared_length(own):
    """Called by servers: add the squared length of a server's part of a gradient, and get a future of the whole's."""
    return _held["shard"].lengths.take(own, torch.clone)


def pull(worker):
    """Called by workers: get this server's weights as they are now."""
    return _held["shard"].weights_for(worker)


def shard_state():
    """Called by workers: get ``{name: array}`` of this server's weights and optimizer state."""
    return _held["shard"].state()


def set_shard_state(arrays):
    """Called by worker 0, before any worker's first step: go on from what ``shard_state`` returned."""
    _held["shard"].set_state(arrays)


@rpc.functions.async_execution
def await_state():
    """Called by the other workers: get a future that is done when worker 0 has set this server's state."""
    return _held["shard"].is_set


def _first_weights(job, context):
    """Return this server's row, and a function that returns the parameters in such a row.

    The workers compute the same, and need not be asked.
    """
    layers, weights = first_weights(job)
    pieces = ServerShards(layers, context.servers, job["options"]["sharding"], channels_innermost(job))
    row = torch.empty(pieces.sizes[context.rank])
    for name, view in pieces.views(context.rank, row).items():
        view.copy_(torch.from_numpy(weights[name]))
    return row, lambda values: list(pieces.views(context.rank, values).values())


class SharesOfAll(object):
    """Adds up the shares of all workers, each of whom waits for the last of them."""

    def __init__(self, workers):
        self._workers = workers
        self._lock = threading.Lock()
        self._sum = None
        self._waiting = []

    def take(self, share, finish):
        """Add a worker's share; its future is fulfilled with ``finish(sum)`` when the last worker's has come."""
        future = torch.futures.Future()
        with self._lock:
            self._sum = share if self._sum is None else self._sum.add_(share)
            self._waiting.append(future)
            if len(self._waiting) < self._workers:
                return future
            waiting, self._waiting = self._waiting, []
            total, self._sum = self._sum, None
            answer = finish(total)
        for each in waiting:
            each.set_result(answer)
        return future


class _Shard(object):
    """Weights of a server and the optimizer that updates them; ``is_set`` is done once a state has been read back."""

    def __init__(self, weights, parameters_in, settings, update):
        """Hold ``weights``, a row of float32, and update them.

        Args:
            weights: the row.
            parameters_in: returns the parameters in such a row, in their own shapes.
            settings: of the optimizer.
            update: the job's option of that name.
        """
        self.is_set = torch.futures.Future()
        self._weights = weights
        # One by one where some do not decay; all together otherwise, which is quicker.
        self._parts = parameters_in if settings.get("decayed", "all") != "all" else lambda row: [row]
        self._parameters = self._parts(weights)
        self._optimizer = open_optimizer(self._parameters, settings, update)

    def _update(self, gradient):
        for parameter, own in zip(self._parameters, self._parts(gradient)):
            parameter.grad = own
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def state(self):
        """Return ``{name: array}`` of the weights and of the optimizer's state."""
        return dict(optimizer_state(self._optimizer), weights=self._weights.numpy().copy())

    def set_state(self, arrays):
        """Go on from what ``state`` returned."""
        set_optimizer_state(self._optimizer, arrays)
        self._weights.copy_(torch.from_numpy(arrays["weights"]))
        self.is_set.set_result(True)


class SynchronousShard(_Shard):
    """Updated once with the gradients of all workers."""

    def __init__(self, weights, parameters_in, optimizer, update, context):
        """Hold ``weights``, a row of float32, and update them by the job's ``optimizer`` settings.

        Args:
            weights: the row.
            parameters_in: as ``_Shard`` has it.
            optimizer: the settings.
            update: the job's option of that name.
            context: names the workers, who send gradients, and the servers.
        """
        # The sum of the gradients stands for their average. Where the update is linear in it, the learning rate and the
        # decay can do the division, which would otherwise be one more pass over all values.
        by: Tuple[int, int] = (context.workers, 1) if is_linear(optimizer) else (1, context.workers)
        self._by_rate, self._by_sum = by
        self._longest = optimizer.get("clip_norm")
        self.lengths = SharesOfAll(context.servers)
        settings = dict(
            optimizer,
            learning_rate=optimizer["learning_rate"] / self._by_rate,
            weight_decay=optimizer["weight_decay"] * self._by_rate,
        )
        super(SynchronousShard, self).__init__(weights, parameters_in, settings, update)
        self._workers, self._shares = context.workers, SharesOfAll(context.workers)

    def take(self, _, gradient, rate=None):
        """Add a worker's gradient; its future is fulfilled when the last worker's has come.

        All workers send the same ``rate`` with the gradients of a step.
        """
        if rate is not None:
            set_rate(self._optimizer, rate / self._by_rate)
        return self._shares.take(gradient, self._updated)

    def _updated(self, total):
        if self._longest is not None:
            self._clip(total)
        self._update(total if self._by_sum == 1 else total.div_(self._by_sum))
        # These weights change no more before each worker has them, since each has to send its next gradient first.
        return self._weights, 0

    def _clip(self, total):
        """Shorten the mean gradient, of which each server has a part: the first one adds up their squared lengths."""
        own = torch.linalg.vector_norm(total).double().square()
        length = float(rpc.rpc_sync("server-0", squared_length, (own,)).sqrt()) / self._workers
        if length > self._longest:
            total.mul_(self._longest / (length + _LEAST_LENGTH))

    def weights_for(self, _):
        """Return the weights, which each worker has already."""
        return self._weights


class AsynchronousShard(_Shard):
    """Updated with each gradient at once, whatever the other workers do."""

    def __init__(self, weights, parameters_in, optimizer, update, context):
        """As ``SynchronousShard`` does."""
        super(AsynchronousShard, self).__init__(weights, parameters_in, optimizer, update)
        self._lock = threading.Lock()
        self._version = 0
        self._pulled = [0] * context.workers

    def take(self, worker, gradient, rate=None):
        """Update; the staleness is how many updates came after those weights that the worker got last.

        A gradient is applied with the ``rate`` of its own worker, who may be elsewhere in the training than others.
        """
        future = torch.futures.Future()
        with self._lock:
            if rate is not None:
                set_rate(self._optimizer, rate)
            late = self._version - self._pulled[worker]
            self._update(gradient)
            self._version += 1
            weights = self._weights_for(worker)
        future.set_result((weights, late))
        return future

    def weights_for(self, worker):
        """Return the weights as they are now, from which the worker's next gradient will be computed."""
        with self._lock:
            return self._weights_for(worker)

    def state(self):
        with self._lock:
            return super(AsynchronousShard, self).state()

    def _weights_for(self, worker):
        self._pulled[worker] = self._version
        return self._weights.clone()  # the next update must not change what is on its way


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
        self._late: "collections.Counter[int]" = collections.Counter()
        self._rate: Tuple[Any, ...] = ()
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
        self.clip()
        self.send()
        self.forget()

    def clip(self):
        """Leave a gradient as it is: the servers shorten the mean of all workers'."""

    def send(self, watch=None):
        """Give the servers the gradients that are there, and take their weights.

        ``watch``, if there is one, is called with the server's number and its future when an answer comes; what it
        returns stands for the answer.
        """
        answers = [
            rpc.rpc_async(server, exchange, (self.context.rank, gradient.cpu()) + self._rate)
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

    def set_learning_rate(self, rate):
        self._rate = (rate,)  # each gradient travels with its own

    def _pull(self):
        answers = [rpc.rpc_async(server, pull, (self.context.rank,)) for server in self._servers]
        for row, answer in zip(self._weights, answers):
            row.copy_(answer.wait())

    def state(self, built):
        """Return this worker's weights and running statistics, and of worker 0 the state of the servers too."""
        state = module_state(built.module)
        if self.context.rank == 0:
            for server in self._servers:
                for name, array in rpc.rpc_sync(server, shard_state).items():
                    state["%s/%s" % (server, name)] = array
        return state

    def set_state(self, built, arrays):
        set_module_state(built.module, arrays)
        for server in self._servers:
            if self.context.rank == 0:
                start = server + "/"
                own = {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}
                rpc.rpc_sync(server, set_shard_state, (own,))
            else:
                rpc.rpc_sync(server, await_state)
        self._pull()

    def forget(self):
        """Set all gradients to zero, which the answers say have been read."""
        torch._foreach_zero_(self._gradients)

    def ablate(self):
        return ParameterServerAblation(self, [row.numel() * row.element_size() for row in self._gradients])

    def facts(self):
        return {
            "update": "on the servers, %s" % update_option(self.job),
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
    """Workers do not wait for each other, so that updates may be late: of several servers, the latest counts."""

    def clip(self):
        """Shorten this worker's gradient, which updates by itself."""
        if "clip_norm" in self.job["optimizer"]:
            length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(row) for row in self._gradients]))
            factor = torch.clamp(self.job["optimizer"]["clip_norm"] / (length + _LEAST_LENGTH), max=1.0)
            torch._foreach_mul_(self._gradients, float(factor))

    def refresh(self):
        self._pull()

    def staleness(self):
        counts, self._late = dict(self._late), collections.Counter()
        return counts
