"""Arithmetic of one rank in a step: as it was counted, or by the rule of six for a transformer."""

from collections.abc import Sequence
from typing import Literal

from steptime.attached.form import Throughput
from steptime.attached.step_parts import KeptSteps
from steptime.results.attached_files import ProcessLines

_OF_A_TOKEN = 6
"""FLOP for each parameter: 2 forward, 4 backward (Kaplan et al. 2020, section 2.1), without attention's products."""


def step_flops(
    processes: Sequence[ProcessLines], kept: KeptSteps | None, trained: Throughput | None
) -> tuple[float | None, Literal["counted", "6 N"] | None]:
    """Return FLOP of a rank in a step, and how that is known.

    By the rule of six only where each rank has the whole of a transformer of which all parameters are trained, and the
    tokens of its batches are known.

    Args:
        processes: all of them.
        kept: the steps of the attempt that is shown.
        trained: what these train on.
    """
    counted = [float(each.flops[-1].forward + each.flops[-1].backward) for each in processes if each.flops]
    if counted:
        return sum(counted) / len(counted), "counted"
    if kept is None or trained is None or trained.tokens.per_step is None:
        return None, None
    ranks = len(kept.attempt.ranks)
    weights = [process.weights[-1] for process in kept.attempt.processes.values() if process.weights]
    whole = [line.elements for line in weights if line.attention and (kept.attempt.world == 1 or line.data_parallel)]
    if len(whole) < ranks or len(set(whole)) != 1 or not whole[0]:
        return None, None
    return float(_OF_A_TOKEN * whole[0]) * trained.tokens.per_step / ranks, "6 N"
