"""One worker, which has nobody to exchange anything with."""

from steptime.stepgraph.plan import Circumstances, Plan
from steptime.stepgraph.work import Work


def alone(work: Work, circumstances: Circumstances) -> Plan:  # noqa: ARG001 - the seam's arguments
    """Return the empty plan."""
    return Plan()
