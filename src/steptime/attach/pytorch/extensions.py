"""Libraries around torch: DeepSpeed, Horovod, Keras, DALI and safetensors."""

from __future__ import annotations

from typing import Any

from .. import patches, process
from ..library_calls import backward_of, collective_of, itself, region_of, requests_of, update_of
from . import collectives
from .passes import hide_from_dynamo

# Of Horovod: what starts a collective on its first argument.
STARTS = (
    *("allreduce_async_", "allreduce_async", "grouped_allreduce_async_", "grouped_allreduce_async"),
    *("allgather_async", "grouped_allgather_async", "broadcast_async_", "broadcast_async", "alltoall_async"),
    *("reducescatter_async", "grouped_reducescatter_async"),
)


def install_deepspeed(module: Any) -> None:
    """Patch DeepSpeed's engine: its optimizers are not torch's, and its backward pass reduces gradients afterwards."""
    engine = module.DeepSpeedEngine
    recorder = process.recorder()
    told: list[str] = []

    def step_before(args: Any, kwargs: Any) -> Any:
        if not recorder.is_mine():
            return None
        if not told:
            told.append(clipping_unasked(args[0]))
            if told[0]:
                process.note(told[0])
        boundary = args[0].is_gradient_accumulation_boundary()
        del kwargs
        recorder.update_begin()
        return (boundary,)

    backward_of(engine, "backward")
    # Between boundaries the engine's step is none. At one it is an update, also where its optimizer skips it.
    patches.measure(engine, "step", step_before, lambda mark, _: recorder.update_end(counts=mark[0]))
    region_of(engine, "save_checkpoint", "save")
    hide_from_dynamo()


def clipping_unasked(engine: Any) -> str:
    """Return that an engine clips gradients though its settings do not ask for it; empty where they do, or not known.

    DeepSpeed 0.19.8 clips at 1.0 by default, which older versions did not.
    """
    settings = getattr(getattr(engine, "_config", None), "_param_dict", None)
    if not isinstance(settings, dict) or "gradient_clipping" in settings or not hasattr(engine, "gradient_clipping"):
        return ""
    norm = engine.gradient_clipping()
    if not isinstance(norm, (int, float)) or not norm > 0.0:
        return ""
    return (
        f"DeepSpeed clips gradients to a norm of {norm:g} by its default; the settings have no gradient_clipping: "
        "0.0 there ends it"
    )


def install_horovod(module: Any) -> None:
    """Patch what starts collectives and what waits for them, before anything else of Horovod takes their names."""
    recorder = process.recorder()
    sets: set[Any] = set()

    def place() -> None:
        known = "horovod" if sets <= {0, None} else "horovod/process sets"
        recorder.rank(module.rank(), module.size(), known)

    def nothing(args: Any) -> int:  # noqa: ARG001 - the form of all
        place()
        return 0

    def learn(args: Any, kwargs: Any) -> None:  # noqa: ARG001 - the form of all
        group = getattr(kwargs.get("process_set"), "process_set_id", None)
        if group not in sets:
            sets.add(group)
            place()

    collective_of(module, "synchronize", "wait", nothing)
    for name in STARTS:
        if hasattr(module, name):
            # The first argument is the tensor, as the second of a method is. Gradients are handed over in autograd's
            # thread, too: only what is asked, not the region it is asked in.
            collective_of(module, name, name, lambda args: collectives.bytes_of(args[0]) if args else None)
            patches.measure(module, name, learn, lambda _, __: None)
    hide_from_dynamo()


def install_horovod_functions(module: Any) -> None:
    """Patch the broadcast of an optimizer's state, which makes one by an update that trains nothing."""
    region_of(module, "broadcast_optimizer_state", "collective")


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
    requests_of(module.DALIGenericIterator, "__next__", itself, patches.never)


def install_checkpoints(module: Any) -> None:
    """Patch distributed checkpoints, which processes or threads of their own may write."""
    for name in ("save", "async_save"):
        region_of(module, name, "save")


def install_safetensors(module: Any) -> None:
    """Patch the writing of a file of tensors."""
    region_of(module, "save_file", "save")
