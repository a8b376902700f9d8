"""Chainer, MXNet and Paddle: what their trainings call.

Chainer: iterators, outermost links, backward passes, optimizers and snapshots; ChainerMN's averaging.

MXNet (gluon and Module): what Python asks of its engine, which works later, and where Python waits for it.

Paddle (not its static graphs): loaders, outermost layers, backward passes, optimizers and what is saved.
"""

from __future__ import annotations

import importlib
import weakref
from typing import Any, Callable, Iterator

from . import patches, process
from .batch_amount import BatchAmount, BatchReader
from .library_calls import (
    backward_of,
    collective_of,
    forward_of,
    itself,
    region_of,
    requests_of,
    update_of,
    waits_of,
)
from .timed_batches import time_iterators

ITERATORS = ("SerialIterator", "MultiprocessIterator", "MultithreadIterator", "DaliIterator")
# Modules of communicators and their classes' method that averages gradients.
COMMUNICATORS = ("naive", "flat", "non_cuda_aware", "pure_nccl")
AVERAGE = "multi_node_mean_grad"
REASON = "MXNet's engine runs later what Python asks for; the asking is in the call of the step"
JOINED = "Paddle joins gradients of ranks inside of the backward pass, where it shows no times"


def install_chainer(chainer: Any) -> None:
    """Patch ``chainer``, which is imported whole."""
    for name in ITERATORS:
        iterator = getattr(chainer.iterators, name, None)
        for method in ("__next__", "next"):
            if iterator is not None and method in vars(iterator):
                requests_of(iterator, method, itself, patches.never, read=_read_list)
    forward_of(chainer.Link, "__call__", lambda *_: bool(chainer.config.enable_backprop))
    backward_of(chainer.Variable, "backward")
    update_of(chainer.GradientMethod, "update")
    saving = importlib.import_module("chainer.serializers.npz")
    region_of(saving, "save_npz", "save")
    chainer.serializers.save_npz = saving.save_npz


def _read_list(batch: Any) -> BatchAmount:
    return BatchAmount(len(batch) if isinstance(batch, list) else None)


def install_chainermn(module: Any) -> None:
    """Patch the averaging of gradients, and learn the rank from the communicator that does it."""
    del module
    for name in COMMUNICATORS:
        try:
            communicators = importlib.import_module(f"chainermn.communicators.{name}_communicator")
        except ImportError:  # it needs a library that is not there
            continue
        for kind in list(vars(communicators).values()):
            if isinstance(kind, type) and AVERAGE in vars(kind):
                _average_of(kind)


def _average_of(communicator: Any) -> None:
    recorder = process.recorder()

    def amount(args: Any) -> int:
        recorder.rank(args[0].rank, args[0].size, "chainermn")
        return sum(each.grad.nbytes for each in args[1].params() if each.grad is not None) if len(args) > 1 else 0

    collective_of(communicator, AVERAGE, AVERAGE, amount)


def install_mxnet(mxnet: Any) -> None:
    """Patch ``mxnet``, which is imported whole."""
    recorder = process.recorder()
    gluon, array, autograd = mxnet.gluon, mxnet.nd.NDArray, mxnet.autograd
    trained: list[Any] = []

    def look(trainer: Any) -> None:
        if not trained:  # not at the import, which a script may do that trains with another library
            trained.append(trainer.__class__)
            process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
        store = getattr(trainer, "_kvstore", None)
        if store is not None:
            recorder.rank(store.rank, store.num_workers, "mxnet")

    forward_of(gluon.Block, "__call__", lambda *_: bool(autograd.is_recording()))
    backward_of(array, "backward")
    backward_of(autograd, "backward")
    for name in ("step", "update"):
        update_of(gluon.Trainer, name, look)
    _patch_loaders(mxnet)
    if hasattr(mxnet, "module"):
        _patch_modules(mxnet.module, look)
    waits_of(array, "asnumpy", "wait_to_read")
    waits_of(mxnet.nd, "waitall")
    region_of(gluon.Block, "save_parameters", "save")


def _patch_loaders(mxnet: Any) -> None:
    """Patch gluon's loaders, whose iterators are generators, and the iterators of `mxnet.io`."""
    loading = importlib.import_module("mxnet.gluon.data.dataloader")
    for name in ("DataLoader", "DataLoaderV1"):
        if hasattr(loading, name):
            time_iterators(getattr(loading, name), "__iter__", itself)
    base, reader = mxnet.io.DataIter, BatchReader()

    def read(batch: Any) -> BatchAmount:
        amount = reader.read(batch.data)
        if amount.samples is not None:
            amount.samples -= batch.pad or 0
        return amount

    for iterator in _kinds_of(base, mxnet.io, mxnet.image):
        for method in ("next", "__next__"):
            if method in vars(iterator):
                requests_of(iterator, method, itself, patches.never, read=read)


def _patch_modules(module: Any, look: Callable[[Any], None]) -> None:
    """Patch the passes and updates of symbolic modules, which `fit` calls as well."""

    def trains(args: Any, kwargs: Any) -> bool:
        wanted = kwargs.get("is_train", args[2] if len(args) > 2 else None)  # noqa: PLR2004 - behind the batch
        return bool(args[0].for_training if wanted is None else wanted)

    for kind in _kinds_of(module.BaseModule, module):
        if "forward" in vars(kind):
            forward_of(kind, "forward", trains)
        if "backward" in vars(kind):
            backward_of(kind, "backward")
        if "update" in vars(kind):
            update_of(kind, "update", look)


def install_paddle(paddle: Any) -> None:
    """Patch ``paddle``, which is imported whole."""
    recorder = process.recorder()
    known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def trains(args: Any, kwargs: Any) -> bool:  # noqa: ARG001 - the form of all
        return bool(args[0].training and paddle.is_grad_enabled())

    def trainable(layer: Any) -> bool:
        weighs = known.get(layer)
        if weighs is None:
            weighs = known[layer] = not all(weight.stop_gradient for weight in layer.parameters())
        return weighs

    def look(optimizer: Any) -> None:
        del optimizer
        count = paddle.distributed.get_world_size()
        if count > 1 and recorder.world is None:
            recorder.rank(paddle.distributed.get_rank(), count, "paddle")
            process.unseen(JOINED, "comm_exposed", "sync_wait")

    forward_of(paddle.nn.Layer, "__call__", trains, trainable=trainable)
    for owner in (paddle.Tensor, paddle.autograd):
        backward_of(owner, "backward")
    for optimizer in _kinds_of(paddle.optimizer.Optimizer, paddle.optimizer):
        for name in ("step", "minimize"):
            if name in vars(optimizer):
                update_of(optimizer, name, look)
    region_of(paddle, "save", "save")
    _patch_paddle_loaders()


def _patch_paddle_loaders() -> None:
    loading = importlib.import_module("paddle.io.dataloader.dataloader_iter")
    for iterator in _kinds_of(loading._DataLoaderIterBase, loading):
        if "__next__" in vars(iterator) and iterator is not loading._DataLoaderIterBase:
            requests_of(iterator, "__next__", lambda made: made._dataset, patches.never)


def _kinds_of(base: Any, *modules: Any) -> Iterator[Any]:
    """Yield the classes of ``modules`` that are ``base`` or derived from it, each once."""
    members = [member for module in modules for member in vars(module).values()]
    yield from dict.fromkeys(kind for kind in members if isinstance(kind, type) and issubclass(kind, base))
