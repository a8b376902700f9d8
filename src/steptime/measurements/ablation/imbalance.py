"""Who computes longer than the others, and whether it is always the same one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptime.measurements.ablation.interval import over_blocks
from steptime.measurements.ablation.stages import Array, StageTimes
from steptime.measurements.interval import Bounded

_BLAME = 0.05
"""A worker is blamed when it is slower than the others by more than this share, in every launch."""


@dataclass(frozen=True)
class ComputeImbalance:
    """Load imbalance of computation without any waiting; shares of the mean computation."""

    factor: Bounded
    """Mean over steps of the longest computation divided by the mean one; 1 is balanced."""
    persistent: Bounded
    """What the slowest worker computes longer on average over all steps."""
    transient: Bounded
    """The rest of factor - 1: whoever happens to be slow in a step."""
    blamed_worker: int | None
    """The rank of the one worker that is slow on average; None where there is none or more than one."""
    compute_s: list[Bounded]
    """For each worker."""


def imbalance(all_stage_times: Sequence[StageTimes]) -> ComputeImbalance | None:
    """Return the imbalance over launches; None for a single worker or without a stage that shows it.

    Two-way decomposition of each launch's matrix (worker x step): C[w, k] = mean + worker[w] + step[k] + rest[w, k].
    The persistent part is the largest worker effect; the transient part is what the rest adds to the mean over steps
    of the maximum over workers. The factor is that of Kavarakuntla et al. (2021): maximum / mean.

    Args:
        all_stage_times: the launches.
    """
    launches = [each.stages[each.alone] for each in all_stage_times if each.alone]
    if not launches or launches[0][0].shape[0] == 1:
        return None
    matrices = [np.concatenate(blocks, axis=1) for blocks in launches]
    slowest = [int(each.mean(axis=1).argmax()) for each in matrices]
    factor = [np.array([(block.max(axis=0) / block.mean(axis=0)).mean() for block in blocks]) for blocks in launches]
    persistent = [
        np.array([block[rank].mean() / block.mean() - 1.0 for block in blocks])
        for blocks, rank in zip(launches, slowest, strict=True)
    ]
    transient = [whole - 1.0 - part for whole, part in zip(factor, persistent, strict=True)]
    return ComputeImbalance(
        factor=over_blocks(factor),
        persistent=over_blocks(persistent),
        transient=over_blocks(transient),
        blamed_worker=_blamed(matrices),
        compute_s=[
            over_blocks([np.array([block[rank].mean() for block in blocks]) for blocks in launches])
            for rank in range(len(matrices[0]))
        ],
    )


def _blamed(matrices: Sequence[Array]) -> int | None:
    """The worker whose typical step is longer than the median of the others' in every launch, if it is one.

    Typical is the median over steps: a pause that comes now and then makes nobody slow.
    """
    slow: set[int] | None = None
    for each in matrices:
        typical = np.median(each, axis=1)
        ranks = range(len(typical))
        late = {rank for rank in ranks if typical[rank] > (1.0 + _BLAME) * np.median(np.delete(typical, rank))}
        slow = late if slow is None else slow & late
    return next(iter(slow)) if slow and len(slow) == 1 else None
