"""Libraries around torch: DeepSpeed, Horovod, Keras, DALI and safetensors."""

from __future__ import annotations

import importlib
from typing import Any

from . import patches, process, torch_collectives
from .library_calls import backward_of, collective_of, region_of, requests_of, update_of
from .torch_passes import hide_from_dynamo


def install_deepspeed(module: Any) -> None:
    """Patch DeepSpeed's engine: its optimizers are not torch's, and its backward pass reduces gradients afterwards."""
    engine = module.DeepSpeedEngine
    recorder = process.recorder()

    def step_before(args: Any, kwargs: Any) -> Any:
        if not recorder.is_mine():
            return None
        boundary = args[0].is_gradient_accumulation_boundary()
        del kwargs
        recorder.update_begin()
        return (boundary,)

    backward_of(engine, "backward")
    # Between boundaries the engine's step is none. At one it is an update, also where its optimizer skips it.
    patches.measure(engine, "step", step_before, lambda mark, _: recorder.update_end(counts=mark[0]))
    region_of(engine, "save_checkpoint", "save")
    hide_from_dynamo()


def install_horovod(module: Any) -> None:
    """Patch the waiting for averages, which happens inside of the optimizer's step, and the asking for them."""
    recorder = process.recorder()
    operations = importlib.import_module("horovod.torch.mpi_ops")

    def nothing(args: Any) -> int:  # noqa: ARG001 - the form of all
        recorder.rank(operations.rank(), operations.size(), "horovod")
        return 0

    collective_of(operations, "synchronize", "wait", nothing)
    names = ["synchronize"]
    for name in ("allreduce_async_", "grouped_allreduce_async_"):
        if hasattr(operations, name):
            # The first argument is the tensor, as the second of a method is. Gradients are handed over in autograd's
            # thread, too: only what is asked, not the region it is asked in.
            collective_of(operations, name, name, lambda args: torch_collectives.bytes_of(args[0]) if args else None)
            names.append(name)
    for name in names:
        if hasattr(module, name):
            setattr(module, name, getattr(operations, name))
    hide_from_dynamo()


def install_distributed_autograd(module: Any) -> None:
    """Patch the backward pass over several processes (`torch.distributed.rpc`)."""
    backward_of(module, "backward")


def install_distributed_optimizer(module: Any) -> None:
    """Patch the updates behind it, which may lie in other processes."""
    update_of(module.DistributedOptimizer, "step")


def install_keras(module: Any) -> None:
    """Patch the updates of Keras, whose optimizers are not torch's."""
    update_of(module.optimizers_module.Optimizer, "apply")


def install_dali(module: Any) -> None:
    """Patch the iterator of DALI's plug-in for PyTorch."""
    requests_of(module.DALIGenericIterator, "__next__", id, patches.never)


def install_checkpoints(module: Any) -> None:
    """Patch distributed checkpoints, which processes or threads of their own may write."""
    for name in ("save", "async_save"):
        region_of(module, name, "save")


def install_safetensors(module: Any) -> None:
    """Patch the writing of a file of tensors."""
    region_of(module, "save_file", "save")
