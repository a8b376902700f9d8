"""The places of trials that differ in nothing but their configuration, and how far each is from the best."""

from collections.abc import Iterable

from steptime.analysis.sites import best_first
from steptime.analysis.summary_form import RankedTrial
from steptime.results.json_form import IntervalOverLaunches
from steptime.statistics.comparison import Measured, compare_trials


def places(trials: Iterable[Measured]) -> list[RankedTrial]:
    """Rank ``trials`` in their groups, the quickest first."""
    groups: dict[str, list[Measured]] = {}
    for measured in trials:
        groups.setdefault(measured.trial.group, []).append(measured)
    ranked = []
    for group, members in groups.items():
        best, *others = best_first(members)
        ranked += [_place(group, rank, each, best, len(members)) for rank, each in enumerate([best, *others], 1)]
    return ranked


def _place(group: str, rank: int, result: Measured, best: Measured, family: int) -> RankedTrial:
    if result is best:
        value = IntervalOverLaunches(value=1.0, low=1.0, high=1.0, least=1.0, most=1.0)
        return RankedTrial(
            group=group,
            rank=rank,
            trial=result.trial.id,
            ratio_to_best=value,
            tied_with_best=True,
            launches_to_settle=None,
        )
    ratio = compare_trials(result, best, family=family)
    return RankedTrial(
        group=group,
        rank=rank,
        trial=result.trial.id,
        ratio_to_best=ratio.interval,
        tied_with_best=ratio.undecided,
        launches_to_settle=ratio.launches_to_settle() or None if ratio.undecided else None,
    )
