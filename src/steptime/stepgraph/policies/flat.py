"""Exchanges that begin when the backward pass is over."""

from dataclasses import replace
from itertools import repeat

from steptime.stepgraph.plan import Circumstances, Operation, Plan
from steptime.stepgraph.policies.packing import VALUE_BYTES, filled, together
from steptime.stepgraph.work import Work

_DEEPSPEED_VALUES = 5e8
_END = 0


def flat(work: Work, circumstances: Circumstances, operation: Operation = "allreduce") -> Plan:  # noqa: ARG001
    """Return one message of everything: Caffe's ``after``, ChainerMN's ``flat``."""
    return Plan(messages=(together(work.forward_tensors(), operation=operation, after=_END),))


def star(work: Work, circumstances: Circumstances) -> Plan:
    """Return one message of everything to worker 0 and back, as the reference room does it."""
    return flat(work, circumstances, "star")


def one_by_one(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return a message per gradient, one after the other: ChainerMN's ``naive``."""
    return Plan(messages=tuple(together([tensor], after=_END) for tensor in work.forward_tensors()))


def chainermn(work: Work, circumstances: Circumstances) -> Plan:
    """Return what the option ``communicator`` asks for; ``auto`` is ``naive`` on CPUs.

    ``naive`` leaves sums to MPI, whose MPICH halves and doubles (R. Thakur, R. Rabenseifner, W. Gropp, 2005): three
    workers send more than four.
    """
    name = str(circumstances.options.get("communicator", "auto"))
    if name == "naive" or (name == "auto" and circumstances.device == "cpu"):
        return replace(one_by_one(work, circumstances), algorithm="halving_doubling")
    return flat(work, circumstances)


def deepspeed(work: Work, circumstances: Circumstances) -> Plan:
    """Return DeepSpeed's stage 0: buckets of ``bucket_values`` values, all behind the backward pass."""
    limit = circumstances.number("bucket_values", _DEEPSPEED_VALUES) * VALUE_BYTES
    packs = filled(work.forward_tensors(), repeat(limit), strictly=True)
    return Plan(messages=tuple(together(pack, after=_END) for pack in packs))
