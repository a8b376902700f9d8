"""Ranks that read the same batches, by checksums of the first ones: on purpose, or for want of a sampler."""

from steptime.attached.attempts import Attempt
from steptime.attached.separate_models import (
    averages_by_horovod,
    averages_gradients,
    averages_shards,
    compared_weights,
)

_FEWEST = 4
"""Batches that are compared, and differ among themselves: one that always comes again shows nothing."""


def batch_groups(attempt: Attempt) -> list[list[int]] | None:
    """Return the ranks in groups that read the same batches, most of them alone; None if that is not known.

    Ranks that hold pieces of one layer (tensor parallel) or of one network (pipeline) read the same on purpose.
    """
    compared = _compared(attempt)
    if len(attempt.ranks) < 2 or len(compared) < _FEWEST:  # noqa: PLR2004 - ranks to compare
        return None
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, checksums in zip(attempt.ranks, zip(*compared, strict=True), strict=True):
        groups.setdefault(checksums, []).append(rank)
    if any(len(ranks) > 1 and len(set(checksums)) < _FEWEST for checksums, ranks in groups.items()):
        return None
    return list(groups.values())


def same_batches(attempt: Attempt) -> str | None:
    """Return a sentence about ranks that train one model on the same batches: averaged, or of equal weights."""
    groups = batch_groups(attempt)
    weights = compared_weights(attempt)
    if (
        groups is None
        or len(groups) > 1
        or not (
            averages_gradients(attempt)
            or averages_shards(attempt)
            or averages_by_horovod(attempt)
            or (weights is not None and weights.equal and weights.whole)
        )
    ):
        return None
    samples = max((step.samples or 0 for steps in attempt.steps.values() for step in steps), default=0)
    whole = (
        f"{samples:,} samples, not {samples * len(attempt.ranks):,}" if samples else "as many samples as one rank reads"
    )
    who = "both ranks" if len(attempt.ranks) == 2 else f"all {len(attempt.ranks)} ranks"  # noqa: PLR2004 - a pair
    drawn = all("no_loader" in step.flags for steps in attempt.steps.values() for step in steps)
    return (
        f"{who} train on the same batches ({len(_compared(attempt))} were compared): a step "
        f"learns from {whole}; unless they divide each sample (context parallel), "
        + (
            "a seed of its own for each rank is missing"
            if drawn
            else "the sampler that divides the data is missing (DistributedSampler)"
        )
    )


def _compared(attempt: Attempt) -> list[list[int]]:
    """Return the checksums of all ranks, of each step of which every rank has one."""
    rows = [[step.content for step in steps] for steps in attempt.steps.values()]
    return [[each for each in row if each is not None] for row in rows if None not in row]
