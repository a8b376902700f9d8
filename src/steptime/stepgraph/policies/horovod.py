"""Horovod: every gradient is announced when it is there, and what all workers have announced is fused and summed.

A. Sergeev, M. Del Balso, arXiv 1802.05799, and the controller of Horovod 0.28: a thread looks every ``cycle_ms`` for
what all workers have, sends it in pieces of up to ``fusion_mb``, and looks again when that is done. On processors that
thread, and those that send for it, share cores with computing.
"""

from steptime.stepgraph.plan import Circumstances, Fusion, Plan
from steptime.stepgraph.policies.packing import MIB, together
from steptime.stepgraph.work import Work

_THRESHOLD_MB = 128.0
_CYCLE_MS = 1.0
_MILLI = 1e-3
_TICK_S = 4e-3
"""Of Linux as most distributions build it. A thread that wakes up waits for one where computing holds its core."""


def fusing(work: Work, circumstances: Circumstances) -> Plan:
    """Return a message per gradient, to be fused as they come. Reads ``fusion_mb`` and ``cycle_ms``."""
    return Plan(
        messages=tuple(together([tensor]) for tensor in work.backward_tensors()),
        fusion=Fusion(
            threshold=int(circumstances.number("fusion_mb", _THRESHOLD_MB) * MIB),
            cycle_s=circumstances.number("cycle_ms", _CYCLE_MS) * _MILLI,
            wake_up_s=_TICK_S if circumstances.device == "cpu" else 0.0,
        ),
    )
