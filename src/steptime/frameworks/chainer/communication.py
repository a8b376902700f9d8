"""What ChainerMN sends in a step, by its communicators; all of them exchange behind the backward pass."""

import typing

from steptime.worker.communication import CommunicationPlan, Policy, PolicyContext, Work, flat, one_by_one

COMMUNICATORS: typing.Mapping[str, typing.Tuple[str, ...]] = {
    "cpu": ("naive",),
    "cuda": ("pure_nccl", "flat", "non_cuda_aware", "naive"),
}
"""What works on a device, the usual one first."""


def communicator_for(name: str, device: str) -> str:
    """Return the communicator that the option ``communicator`` asks for; ``auto`` is the device's usual one."""
    return COMMUNICATORS[device][0] if name == "auto" else name


def communicated(work: Work, context: PolicyContext) -> CommunicationPlan:
    """Return a message per gradient for ``naive``, and one of all gradients for the other communicators.

    ``naive`` leaves sums to MPI, whose MPICH halves and doubles (R. Thakur, R. Rabenseifner, W. Gropp, 2005): three
    workers send more than four.
    """
    if communicator_for(str(context.options["communicator"]), context.device) == "naive":
        return one_by_one(work, context)._replace(algorithm="halving_doubling")
    return flat(work, context)


POLICIES: typing.Mapping[str, Policy] = {"allreduce": communicated}
