"""The strategy of a session in torch: it wraps the network, and turns a loss into new weights.

The store in which torch's processes find each other, out of reach of other interfaces than the launch's own.

Torch's own server of a store listens on every address of its host, and answers whoever calls.
"""

import contextlib
import os
import socket
from datetime import timedelta
from typing import Any, Dict, Iterator, Optional, Tuple
from urllib.parse import parse_qs, quote, urlsplit

import torch
from torch import distributed

from steptime.libraries.torch.ablation import TorchAblation
from steptime.libraries.torch.checkpoint import (
    clip,
    module_state,
    open_optimizer,
    optimizer_state,
    scaler_state,
    set_module_state,
    set_optimizer_state,
    set_rate,
    set_scaler_state,
    update_of,
    update_option,
)
from steptime.libraries.torch.compilation import Compilation
from steptime.libraries.torch.network import prefers_channels_last
from steptime.worker.process_context import Job, ProcessContext


class TorchStrategy(object):
    """One worker by itself; strategies override what they do differently.

    The session calls, in this order: the constructor, ``prepare`` once, ``update`` in every step, and ``leave``.

    ``innermost``
        Whether parameters may lie with their channels innermost, as images do.
    ``autocast``
        Whether the session enters torch's autocast under bf16; otherwise the strategy sees to the precision.
    ``weights_type``
        The type of weights and inputs as the forward pass multiplies them, before autocast.
    ``wraps``
        Whether ``prepare`` returns the network inside of what torch.compile leaves out; it is compiled ahead of that.
    ``shares_loss``
        Whether the loss of each micro-batch of a step is divided by their number before the strategy gets it.
    """

    innermost = True
    autocast = True
    weights_type = torch.float32
    wraps = False
    shares_loss = True

    def __init__(self, job: Job, context: ProcessContext, device: Any) -> None:
        """Meet the other workers.

        Args:
            job: the job.
            context: of this worker.
            device: ``Cpu`` or ``Cuda`` of ``devices.py``, for which the process has been set up.
        """
        self.job = job
        self.context = context
        self.device = device
        self.compilation = Compilation(job, device.torch_device.type)
        self.optimizer: Any = None
        self.scaler: Any = None

    def prepare(self, built: Any) -> Any:
        """Return what is called with inputs and gives outputs; keep the optimizer.

        ``built`` is the ``TorchWorkload``: its module lies on the device and has the first weights.
        """
        self.optimizer = open_optimizer(built.module.parameters(), self.job["optimizer"], update_option(self.job))
        if self.job["precision"] == "fp16":
            self.scaler = torch.amp.GradScaler(self.device.torch_device.type)
        return built.module

    def alone(self) -> Any:
        """Return a context for a micro-batch behind which more follow, in which nothing is exchanged."""
        return contextlib.ExitStack()  # an empty context; nullcontext is newer than Python 3.6

    def gather(self, loss: Any) -> None:
        """Run the backward pass of a micro-batch behind which more follow; its gradients stay."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self, loss: Any) -> None:
        """Run the backward pass of ``loss`` and update the weights; gradient memory is given back."""
        if self.scaler is None:
            loss.backward()
            self.apply()
        else:  # gradients of half precision would be lost below 6e-8; torch's scale follows what overflows
            self.scaler.scale(loss).backward()
            if "clip_norm" in self.job["optimizer"]:
                self.scaler.unscale_(self.optimizer)
                self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.drop_gradients()

    def apply(self) -> None:
        """Update the weights with the gradients that are there, clipped."""
        self.clip()
        self.optimizer.step()

    def clip(self) -> None:
        """Shorten the gradients of all workers if the job has them clipped."""
        clip([each for group in self.optimizer.param_groups for each in group["params"]], self.job["optimizer"])

    def drop_gradients(self) -> None:
        """Give the gradients' memory back."""
        self.optimizer.zero_grad(set_to_none=True)

    def set_learning_rate(self, rate: float) -> None:
        """Update with the learning rate ``rate`` from the next step on."""
        set_rate(self.optimizer, rate)

    def refresh(self) -> None:
        """Fetch the newest weights before an evaluation, where others change them."""

    def evaluated(self) -> None:
        """Undo what a forward pass without a backward pass has left."""

    def state(self, built: Any) -> Optional[Dict[str, Any]]:
        """Return what ``Session.state`` does, without the random numbers; None if the strategy cannot go on."""
        state = dict(module_state(built.module), **optimizer_state(self.optimizer))
        if self.scaler is not None:
            state.update(scaler_state(self.scaler))
        return state

    def set_state(self, built: Any, arrays: Dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        set_module_state(built.module, arrays)
        set_optimizer_state(self.optimizer, arrays)
        if self.scaler is not None:
            set_scaler_state(self.scaler, arrays)

    def ablate(self) -> Any:
        """Return the ``TorchAblation`` of this strategy's step, or None; called once, after ``prepare``."""
        return TorchAblation(self)

    def count(self, parameter: Any) -> int:
        """Return the number of values of a parameter of the whole network."""
        return parameter.numel()

    def whole(self, parameter: Any) -> Any:
        """Return a parameter as an ordinary tensor; every worker calls it, in the same order."""
        return parameter.detach()

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts of the strategy."""
        return {"update": update_of(self.optimizer)}

    def staleness(self) -> Optional[Dict[int, int]]:
        """Return what ``Session.staleness`` does."""
        return None

    def leave(self) -> None:
        """Leave the other workers at the end."""

    def abort(self) -> None:
        """Leave after a failure, without waiting for anybody."""
        self.leave()


def channels_innermost(job: Job) -> bool:
    """Return whether images lie with their channels innermost, by the job's option ``channels_last``."""
    wanted = job["options"].get("channels_last", "auto")
    return prefers_channels_last(job["workload"]) if wanted == "auto" else wanted == "yes"


_SCHEME = "steptime"
_LIMIT = timedelta(seconds=1800)
"""Torch's own, where it names none."""
_CALLERS = 1024
"""That may wait for the server at once."""


def rendezvous_url(device: Any, context: ProcessContext) -> str:
    """Return where the workers find each other.

    On one host without CUDA devices that is a file of the run folder, else a server of worker 0 at the root address.
    """
    path = os.path.join(context.folder, "torch-store-%d" % context.root_port)
    if context.interface == "lo" and device.backend == "gloo" and quote(path) == path:
        return "file://" + path
    return server_url(context)


def server_url(context: ProcessContext) -> str:
    """Return the ``init_method`` by which the first process serves a store at the root address, and others call it."""
    return "%s://%s" % (_SCHEME, context.root_address)


def _open_store(url: str, timeout: Any = _LIMIT, **_: Any) -> Iterator[Tuple[Any, int, int]]:
    """Yield the store at ``url``, the rank and the number of processes: torch's form of a rendezvous."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    rank, processes = int(asked["rank"][0]), int(asked["world_size"][0])
    own = {} if rank else {"is_master": True, "master_listen_fd": _listener(parts.hostname, parts.port).detach()}
    yield distributed.TCPStore(parts.hostname, parts.port, processes, timeout=timeout, **own), rank, processes
    raise RuntimeError("processes that met at %s cannot meet there a second time" % url)


def _listener(host: Any, port: Any) -> socket.socket:
    """Return a socket that listens on one address; raises OSError where the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_CALLERS)
    return listener


if distributed.is_available():
    distributed.register_rendezvous_handler(_SCHEME, _open_store)
