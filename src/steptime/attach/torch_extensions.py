"""Libraries around torch: DeepSpeed, Horovod, DALI and safetensors."""

from __future__ import annotations

import importlib
from typing import Any

from . import patches, process, torch_collectives
from .library_calls import region_of, requests_of
from .torch_passes import hide_from_dynamo


def install_deepspeed(module: Any) -> None:
    """Patch DeepSpeed's engine: its optimizers are not torch's, and its backward pass reduces gradients afterwards."""
    engine = module.DeepSpeedEngine
    recorder = process.recorder()

    def backward_before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine() or recorder.inside("backward"):
            return None
        recorder.backward_begin()
        return True

    def step_before(args: Any, kwargs: Any) -> Any:
        if not recorder.is_mine():
            return None
        boundary = args[0].is_gradient_accumulation_boundary()
        del kwargs
        recorder.update_begin()
        return (boundary,)

    patches.measure(engine, "backward", backward_before, lambda _, __: recorder.backward_end(synchronised=None))
    # Between boundaries the engine's step is none. At one it is an update, also where its optimizer skips it.
    patches.measure(engine, "step", step_before, lambda mark, _: recorder.update_end(counts=mark[0]))
    region_of(engine, "save_checkpoint", "save")
    hide_from_dynamo()


def install_horovod(module: Any) -> None:
    """Patch the waiting for averages, which happens inside of the optimizer's step, and the asking for them."""
    recorder = process.recorder()
    operations = importlib.import_module("horovod.torch.mpi_ops")

    def wait_before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine() or recorder.inside("collective"):
            return None
        recorder.rank(operations.rank(), operations.size(), "horovod")
        recorder.enter("collective")
        return True

    def wait_after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        timed = recorder.leave("collective")
        if timed is not None:
            recorder.collective("wait", 0, timed[0], timed[1])

    patches.measure(operations, "synchronize", wait_before, wait_after)
    names = ["synchronize"]
    for name in ("allreduce_async_", "grouped_allreduce_async_"):
        if hasattr(operations, name):
            # The first argument is the tensor, as the second of a method is.
            _collective_function(operations, name)
            names.append(name)
    for name in names:
        if hasattr(module, name):
            setattr(module, name, getattr(operations, name))
    hide_from_dynamo()


def _collective_function(owner: Any, name: str) -> None:
    recorder = process.recorder()
    size = torch_collectives.bytes_of

    def before(args: Any, kwargs: Any) -> Any:
        # Gradients are handed over in autograd's thread, too: only what is asked, not the region it is asked in.
        from_user = recorder.is_mine() and not recorder.inside("collective")
        del kwargs
        return (size(args[0]), recorder.enter("collective")) if from_user and args else None

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        timed = recorder.leave("collective")
        if timed is not None:
            recorder.collective(name, mark[0], timed[0], timed[1])

    patches.measure(owner, name, before, after)


def install_dali(module: Any) -> None:
    """Patch the iterator of DALI's plug-in for PyTorch."""
    requests_of(module.DALIGenericIterator, "__next__", id, patches.never)


def install_safetensors(module: Any) -> None:
    """Patch the writing of a file of tensors."""
    region_of(module, "save_file", "save")
