"""PyTorch's DistributedDataParallel: buckets in the order in which gradients come, sent during the backward pass.

S. Li et al., PVLDB 13 (2020) 3005, and the reducer of torch 2.13. In the first step all gradients are one bucket;
from the second on a bucket closes with the tensor that reaches its limit: 1 MiB for the first and 25 MiB for the
others, unless a size was asked for, which then holds for all.
"""

from collections.abc import Iterator
from itertools import chain, repeat

from steptime.stepgraph.plan import Circumstances, Plan
from steptime.stepgraph.policies.packing import MIB, filled, together
from steptime.stepgraph.work import Tensor, Work

_FIRST = 1 * MIB
_OWN_MB = 25.0
_GLOO_THREADS = 2
"""A process group over gloo works on two collectives at once; NCCL queues them on one stream."""


def buckets(work: Work, circumstances: Circumstances) -> Plan:
    """Return one all-reduce per bucket. Of the options it reads ``bucket_mb``, whose 25 is DDP's own way."""
    asked = circumstances.number("bucket_mb", _OWN_MB)
    limits = chain([_FIRST], repeat(_OWN_MB * MIB)) if asked == _OWN_MB else repeat(asked * MIB)
    packs = filled(_as_they_come(work), limits)
    return Plan(
        messages=tuple(together(pack) for pack in packs),
        in_flight=_GLOO_THREADS if circumstances.device == "cpu" else 1,
    )


def _as_they_come(work: Work) -> Iterator[Tensor]:
    """Yield gradients as torch completes them: only a linear layer's bias comes before its weight."""
    for layer in reversed(work.layers):
        yield from reversed(layer.tensors) if layer.kind == "linear" else layer.tensors
