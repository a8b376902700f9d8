"""Chainer: iterators, outermost links, backward passes, optimizers and snapshots; ChainerMN's averaging."""

from __future__ import annotations

import importlib
from typing import Any

from . import patches, process
from .library_calls import backward_of, collective_of, forward_of, region_of, requests_of, update_of

ITERATORS = ("SerialIterator", "MultiprocessIterator", "MultithreadIterator", "DaliIterator")
# Modules of communicators and their classes' method that averages gradients.
COMMUNICATORS = ("naive", "flat", "non_cuda_aware", "pure_nccl")
AVERAGE = "multi_node_mean_grad"


def install(chainer: Any) -> None:
    """Patch ``chainer``, which is imported whole."""
    for name in ITERATORS:
        iterator = getattr(chainer.iterators, name, None)
        for method in ("__next__", "next"):
            if iterator is not None and method in vars(iterator):
                requests_of(iterator, method, id, patches.never)
    forward_of(chainer.Link, "__call__", lambda: bool(chainer.config.enable_backprop))
    backward_of(chainer.Variable, "backward")
    update_of(chainer.GradientMethod, "update")
    saving = importlib.import_module("chainer.serializers.npz")
    region_of(saving, "save_npz", "save")
    chainer.serializers.save_npz = saving.save_npz


def install_mn(module: Any) -> None:
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
