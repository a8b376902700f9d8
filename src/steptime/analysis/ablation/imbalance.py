"""Who computes longer than the others, and whether it is always the same one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptime.analysis.ablation.stages import Array, StageTimes, over_blocks
from steptime.results.json_form import Interval
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.simultaneous import sidak_level

_BLAME = 0.05
"""A worker is blamed when it is shown to be slower than the others, and by more than this share."""


@dataclass(frozen=True)
class ComputeImbalance:
    """Load imbalance of computation without any waiting; shares of the mean computation."""

    factor: Interval
    """Mean over steps of the longest computation divided by the mean one; 1 is balanced."""
    persistent: Interval
    """What the slowest worker computes longer on average over all steps."""
    transient: Interval
    """The rest of factor - 1: whoever happens to be slow in a step."""
    blamed_worker: int | None
    """The rank of the one worker that is slow on average; None if there is none or more than one."""
    compute_s: list[Interval]
    """For each worker."""
    persistent_blocks: list[Array]
    """Of each launch, the persistent part in every block."""


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
        blamed_worker=blamed_worker(matrices),
        compute_s=[
            over_blocks([np.array([block[rank].mean() for block in blocks]) for blocks in launches])
            for rank in range(len(matrices[0]))
        ],
        persistent_blocks=persistent,
    )


def blamed_worker(matrices: Sequence[Array]) -> int | None:
    """Return the worker that is shown to compute longer than the others; None if that is none or several.

    A worker's typical computation in a launch is its median over steps: a rare pause makes no worker slow.
    Its logarithm is launch + worker + rest, and the rest's variance, over all workers and launches, bounds what
    launches make of equal workers: memory layout or placement slow one down by chance. The intervals of all workers
    against the mean of the others are simultaneous (Šidák), and a single launch blames no worker.
    """
    launches, workers = len(matrices), len(matrices[0])
    if launches == 1:
        return None
    typical = np.log([np.median(each, axis=1) for each in matrices])
    effects = typical - typical.mean(axis=1, keepdims=True)
    freedom = (launches - 1) * (workers - 1)
    variance = float(((effects - effects.mean(axis=0)) ** 2).sum()) / freedom
    # An effect is (1 - 1 / workers) of the difference from the mean of the others.
    against_others = effects.mean(axis=0) * workers / (workers - 1)
    error = np.sqrt(variance / launches * workers / (workers - 1))
    claims = workers if workers > 2 else 1  # noqa: PLR2004 - of two, one is slow by as much as the other is quick
    half_width = float(t_quantile(freedom, sidak_level(LEVEL, claims))) * error
    slow = np.flatnonzero((against_others > half_width) & (against_others > np.log1p(_BLAME)))
    return int(slow[0]) if len(slow) == 1 else None
