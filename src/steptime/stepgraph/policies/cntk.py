"""CNTK's distributed learners; all exchange behind the backward pass.

F. Seide et al., Interspeech 2014, for one bit per value; K. Chen, Q. Huo, ICASSP 2016, for block momentum.
"""

from dataclasses import replace
from math import ceil

from steptime.stepgraph.plan import Circumstances, Plan
from steptime.stepgraph.policies.flat import flat
from steptime.stepgraph.policies.packing import together
from steptime.stepgraph.work import Work

_PACK = 32 * 2**20
"""Bytes below which gradients are copied into one buffer: what CNTK 2.7 answers to ``get_mpipack_threshold``."""
_AT_ONCE = 4
"""All are started before any is waited for; workloads have no more large gradients than this."""
_VALUE_BITS = 32
_BLOCK = 2048.0
_END = 0


def small_together(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001
    """Return large gradients one by one and the others in one message, all under way at once."""
    small = [tensor for tensor in work.forward_tensors() if tensor.bytes < _PACK]
    large = [tensor for tensor in work.forward_tensors() if tensor.bytes >= _PACK]
    packs = [*([tensor] for tensor in large), *([small] if small else [])]
    return Plan(messages=tuple(together(pack, after=_END) for pack in packs), in_flight=_AT_ONCE)


def onebit(work: Work, circumstances: Circumstances) -> Plan:
    """Return gradients of ``bits`` bits per value; the scales of their columns are left out."""
    bits = circumstances.number("bits", 1.0)
    (whole,) = flat(work, circumstances).messages
    return Plan(messages=(replace(whole, bytes=ceil(whole.bytes * bits / _VALUE_BITS)),), synchronous=True)


def block_momentum(work: Work, circumstances: Circumstances) -> Plan:
    """Return weights that are averaged once per block of ``block_size`` samples of all workers together."""
    per_step = max(circumstances.batch * circumstances.workers, 1)
    steps = max(circumstances.number("block_size", _BLOCK) / per_step, 1.0)
    return replace(flat(work, circumstances), every=steps)
