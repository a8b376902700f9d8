"""Putting gradients together into messages, by size alone."""

from collections.abc import Iterable, Iterator

from steptime.stepgraph.plan import Message, Operation
from steptime.stepgraph.work import Tensor

MIB = 2**20
VALUE_BYTES = 4


def filled(tensors: Iterable[Tensor], limits: Iterator[float], *, strictly: bool = False) -> Iterator[list[Tensor]]:
    """Yield neighbours that fill a pack, which closes with the tensor that reaches its limit (or crosses it)."""
    pack: list[Tensor] = []
    limit = next(limits)
    for tensor in tensors:
        pack.append(tensor)
        size = sum(each.bytes for each in pack)
        if size > limit or (size == limit and not strictly):
            yield pack
            pack, limit = [], next(limits)
    if pack:
        yield pack


def together(tensors: Iterable[Tensor], *, operation: Operation = "allreduce", after: int | None = None) -> Message:
    """Return one message of several gradients, which can go when the last of them is there, or ``after`` a layer."""
    held = tuple(tensors)
    return Message(
        operation,
        sum(tensor.bytes for tensor in held),
        min(tensor.layer for tensor in held) if after is None else after,
        tuple(tensor.name for tensor in held),
    )
