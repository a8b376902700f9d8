"""MXNet (gluon): what Python asks of its engine, which works later, and where Python waits for it."""

from __future__ import annotations

import importlib
from typing import Any

from . import patches, process
from .library_calls import backward_of, forward_of, region_of, requests_of, update_of, waits_of

REASON = "MXNet's engine runs later what Python asks for; the asking is in the call of the step"


def install(mxnet: Any) -> None:
    """Patch ``mxnet``, which is imported whole."""
    recorder = process.recorder()
    gluon, array, autograd = mxnet.gluon, mxnet.nd.NDArray, mxnet.autograd
    loading = importlib.import_module("mxnet.gluon.data.dataloader")

    def look(trainer: Any) -> None:
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
            requests_of(getattr(loading, name), "__next__", id, patches.never)
    waits_of(array, "asnumpy", "wait_to_read")
    waits_of(mxnet.nd, "waitall")
    region_of(gluon.Block, "save_parameters", "save")
    process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
