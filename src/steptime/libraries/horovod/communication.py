"""What Horovod sends in a step: every gradient is announced when it is there, then fused with others and summed.

A. Sergeev, M. Del Balso, arXiv 1802.05799, and the controller of Horovod 0.28: a thread looks every ``cycle_ms`` for
gradients that all workers have, sends them in pieces of up to ``fusion_mb``, and looks again when the sums are there.
"""

import typing

from steptime.worker.communication import MIB, CommunicationPlan, Fusion, Policy, PolicyContext, Work, layerwise

_MILLI = 1e-3


def fusion_bytes(fusion_mb: float) -> int:
    """Return Horovod's fusion threshold for the option ``fusion_mb``, in MiB."""
    return int(fusion_mb * MIB)


def fused(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a message per gradient, to be fused as they become ready. Reads ``fusion_mb`` and ``cycle_ms``."""
    return layerwise(work, context)._replace(
        fusion=Fusion(
            threshold=fusion_bytes(context.number("fusion_mb")),
            cycle_s=context.number("cycle_ms") * _MILLI,
        )
    )


POLICIES: typing.Mapping[str, Policy] = {"allreduce": fused}
