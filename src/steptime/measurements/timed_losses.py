"""Losses of timed launches: trials of one ranking train the same, so that behind the warm-up all have the same loss.

The equivalence check runs launches of its own, which say nothing of a step that is skipped, cached or not exchanged
where it is timed. What timed launches record shows that without another launch: weights, batches and updates that are
the same give the same losses but for rounding, whoever computes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from steptime.catalog.strategies import strategy_named
from steptime.measurements.records import Launch
from steptime.study.trial import Trial

_AGREE = 1e-3
"""Relative: losses of right runs that are farther apart are spread by more than rounding, and nothing is claimed."""
_FEWEST_OTHERS = 2
_APART = 10.0
"""Times the range of the others' losses, that a loss is away from them at least."""


@dataclass(frozen=True)
class WarmLosses:
    """The losses of a trial's launches behind the warm-up."""

    trial: Trial
    by_steps: Mapping[int, Sequence[tuple[float, ...]]]
    """By the number of warm-up steps, the losses of each launch, in the order of ranks."""


def warm_losses(trial: Trial, launches: Sequence[Launch]) -> WarmLosses:
    """Return those of ``launches`` in which every worker kept a loss."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for launch in launches:
        workers = sorted(launch.workers, key=lambda worker: worker.rank)
        losses = [worker.loss_first for worker in workers if worker.loss_first is not None]
        if workers and len(losses) == len(workers):
            found.setdefault(len(workers[0].warmup_ends_s), []).append(tuple(losses))
    return WarmLosses(trial, found)


def deviating(trials: Sequence[WarmLosses]) -> dict[str, str]:
    """Return why trials did not train what the others of their group train, by trial id.

    A trial is named where at least two others agree with each other and none of its losses is near theirs. Strategies
    whose workers do not wait for each other, or exchange something else, have losses of their own.
    """
    groups: dict[tuple[str, int, int], dict[str, list[tuple[float, ...]]]] = {}
    for each in trials:
        strategy = strategy_named(each.trial.strategy)
        if strategy.synchronous and strategy.exact and each.trial.training is None:
            for steps, losses in each.by_steps.items():
                group = groups.setdefault((each.trial.group, each.trial.seed, steps), {})
                group.setdefault(each.trial.id, []).extend(losses)
    found: dict[str, str] = {}
    for (_, _, steps), group in groups.items():
        for trial_id, own in group.items():
            others = [losses for other, each in group.items() if other != trial_id for losses in each]
            if len(group) > _FEWEST_OTHERS and (reason := _difference(own, others, steps)):
                found[trial_id] = reason
    return found


def _difference(own: Sequence[tuple[float, ...]], others: Sequence[tuple[float, ...]], steps: int) -> str | None:
    """Return the sentence about the first worker whose loss is away from all others'; None if no worker's is."""
    for rank, (mine, theirs) in enumerate(zip(zip(*own, strict=True), zip(*others, strict=True), strict=True)):
        usual = median(theirs)
        spread = max(theirs) - min(theirs)
        allowed = max(_AGREE * abs(usual), _APART * spread)
        if spread <= _AGREE * abs(usual) and all(abs(loss - usual) > allowed for loss in mine):
            return (
                f"its timed launches train something else: behind {steps} steps of warm-up worker {rank} had a loss of "
                f"{median(mine):.6g}, and the others of its group have {usual:.6g}"
            )
    return None
