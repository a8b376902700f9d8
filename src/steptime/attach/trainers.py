"""Chainer and MXNet: what their trainings call.

Chainer: iterators, outermost links, backward passes, optimizers and snapshots; ChainerMN's averaging.

MXNet (gluon): what Python asks of its engine, which works later, and where Python waits for it.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import patches, process
from .batch_amount import BatchAmount
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

ITERATORS = ("SerialIterator", "MultiprocessIterator", "MultithreadIterator", "DaliIterator")
# Modules of communicators and their classes' method that averages gradients.
COMMUNICATORS = ("naive", "flat", "non_cuda_aware", "pure_nccl")
AVERAGE = "multi_node_mean_grad"
REASON = "MXNet's engine runs later what Python asks for; the asking is in the call of the step"


def install_chainer(chainer: Any) -> None:
    """Patch ``chainer``, which is imported whole."""
    for name in ITERATORS:
        iterator = getattr(chainer.iterators, name, None)
        for method in ("__next__", "next"):
            if iterator is not None and method in vars(iterator):
                requests_of(iterator, method, itself, patches.never, read=_read_list)
    forward_of(chainer.Link, "__call__", lambda: bool(chainer.config.enable_backprop))
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
        for each in list(vars(communicators).values()):
            if isinstance(each, type) and AVERAGE in vars(each):
                _average_of(each)


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
    loading = importlib.import_module("mxnet.gluon.data.dataloader")

    trained: list[Any] = []

    def look(trainer: Any) -> None:
        if not trained:  # not at the import, which a script may do that trains with another library
            trained.append(trainer.__class__)
            process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
        store = getattr(trainer, "_kvstore", None)
        if store is not None:
            recorder.rank(store.rank, store.num_workers, "mxnet")

    forward_of(gluon.Block, "__call__", autograd.is_recording)
    backward_of(array, "backward")
    backward_of(autograd, "backward")
    update_of(gluon.Trainer, "step", look)
    # A loader without worker processes is a generator, whose batches are a gap.
    for name in ("_MultiWorkerIter", "_MultiWorkerIterV1"):
        if hasattr(loading, name):
            requests_of(getattr(loading, name), "__next__", itself, patches.never)
    waits_of(array, "asnumpy", "wait_to_read")
    waits_of(mxnet.nd, "waitall")
    region_of(gluon.Block, "save_parameters", "save")
