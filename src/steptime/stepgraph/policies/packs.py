"""TensorFlow and JAX: gradients in packs of a fixed make-up, one collective after the other."""

from itertools import repeat

from steptime.stepgraph.plan import Circumstances, Plan
from steptime.stepgraph.policies.packing import MIB, filled, together
from steptime.stepgraph.work import Work

_TENSORFLOW_MB = 4.0
_JAX_KB = 256.0
_KIB = 2**10


def tensorflow(work: Work, circumstances: Circumstances) -> Plan:
    """Return MultiWorkerMirroredStrategy's packs, as ``pack_mb`` asks for.

    Gradients in reverse; a pack takes one more as long as it has not passed its size, and goes when its last gradient
    is there. A token makes each collective wait for the one before (TensorFlow 2.21, cross_device_ops).
    """
    size = circumstances.number("pack_mb", _TENSORFLOW_MB) * MIB
    limits = repeat(size if size > 0 else float("inf"))
    packs = filled(work.backward_tensors(), limits, strictly=True)
    return Plan(messages=tuple(together(pack) for pack in packs))


def jax(work: Work, circumstances: Circumstances) -> Plan:
    """Return the room's way: gradients of up to ``pack_kb`` in one message, larger ones alone, each when it is there.

    The pack holds gradients of all layers, so that it goes last.
    """
    limit = circumstances.number("pack_kb", _JAX_KB) * _KIB
    small = [tensor for tensor in work.backward_tensors() if tensor.bytes <= limit]
    if len(small) == 1:
        small = []
    alone = [tensor for tensor in work.backward_tensors() if tensor not in small]
    messages = [*(together([tensor]) for tensor in alone), *([together(small)] if small else [])]
    messages.sort(key=lambda message: -message.after)
    return Plan(messages=tuple(messages))
