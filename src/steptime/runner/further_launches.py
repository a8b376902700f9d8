"""Further launches of a budget, beyond the least of each trial: who gets them, and what another minute would settle."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from steptime.results.records import Launch
from steptime.runner.block_runner import Schedule
from steptime.statistics.comparison import POWER
from steptime.statistics.launch_times import LaunchTimes
from steptime.statistics.stopping_rule import reduced
from steptime.statistics.undecided_pairs import undecided_pairs, undecided_trials
from steptime.study.trial import Trial
from steptime.units import format_count, format_seconds

_MINUTE_S, _TOO_LONG_S = 60.0, 3600.0
"""What is offered, and beyond which nothing is."""
_NAMED = 3
"""So many pairs are named, the cheapest first."""


@dataclass(frozen=True)
class _OpenPair:
    """Two trials that are not told apart, and the launches that would show a difference as large as the one seen."""

    trials: tuple[Trial, Trial]
    needed: int
    """More launches of each."""
    seconds: float
    """Of them all."""
    most: int
    """Launches of either that there would be then."""

    def in_words(self, allowed: int) -> str:
        """Name trials, launches and time; and the study's key, where it allows for fewer launches."""
        one, other = (trial.in_words for trial in self.trials)
        if one == other:  # trials that differ in their options
            one, other = (trial.id for trial in self.trials)
        more = format_count(self.needed, "more launch", "more launches")
        changed = f", with launches.max={self.most}" if self.most > allowed else ""
        return f"{one}, and {other} ({more} of each, about {format_seconds(self.seconds)}{changed})"


def open_trials(schedule: Schedule[Trial, Launch]) -> set[str]:
    """Return the ids of the trials that are not told apart from another one, or are compared with no other."""
    groups = _groups(schedule)
    alone = {members[0] for members in groups if len(members) == 1}
    return alone | undecided_trials(_reduced_launches(schedule), groups, _workloads(schedule))


def what_more_launches_show(schedule: Schedule[Trial, Launch], launch_s: Callable[[Trial], float]) -> list[str]:
    """Return a sentence about what another minute of launches would settle; none where all trials are told apart.

    Only pairs count of which both get further launches: a trial that is known as well as its study asks gets none.

    Args:
        schedule: of a run that its budget ended.
        launch_s: returns about how long a launch of a trial takes.
    """
    waiting = {trial.id: trial for trial in schedule.unfinished()}
    launches = _reduced_launches(schedule)
    if never := [name for name in waiting if not launches[name]]:
        return [f"another minute of launches would begin with {format_count(len(never), 'trial')} without any"]
    pairs_left = undecided_pairs(launches, _groups(schedule), _workloads(schedule))
    undecided = [each for each in pairs_left if waiting.keys() >= set(each.trials)]
    if not undecided:
        return []
    pairs = []
    for each in undecided:
        if each.needed is not None:
            needed = max(each.needed, 1)  # 0 where the launches there are would do so four times in five
            both = (waiting[each.trials[0]], waiting[each.trials[1]])
            seconds = needed * sum(map(launch_s, both))
            pairs.append(_OpenPair(both, needed, seconds, needed + max(map(schedule.count, both))))
    pairs.sort(key=lambda pair: pair.seconds)
    if not pairs:
        single = all(len(launches[name]) == 1 for each in undecided for name in each.trials)
        why = "a second launch would show how they spread" if single else "more than a thousand would be needed of each"
        return [f"another minute of launches would tell nothing apart that is known: {why}"]
    settled = _settled_within(_MINUTE_S, pairs, launch_s)
    allowed = schedule.rule.most
    if not settled and pairs[0].seconds > _TOO_LONG_S:
        return ["an hour of launches would tell no pair apart: they differ too little for how their launches spread"]
    if not settled:
        return [f"another minute of launches would tell no pair apart; the nearest: {pairs[0].in_words(allowed)}"]
    named = "; ".join(pair.in_words(allowed) for pair in settled[:_NAMED])
    rest = f"; and {format_count(len(settled) - _NAMED, 'more pair')}" if len(settled) > _NAMED else ""
    return [f"another minute of launches would tell apart, each with a chance of {100.0 * POWER:.0f} %: {named}{rest}"]


def _settled_within(
    total_s: float, pairs: Sequence[_OpenPair], launch_s: Callable[[Trial], float]
) -> Sequence[_OpenPair]:
    """Return the pairs, cheapest first, whose launches fit together; those of a trial serve all pairs that it is in."""
    made: dict[str, int] = {}
    left_s, settled = total_s, []
    for pair in pairs:
        cost_s = sum(max(0, pair.needed - made.get(each.id, 0)) * launch_s(each) for each in pair.trials)
        if cost_s <= left_s:
            left_s -= cost_s
            made |= {each.id: max(pair.needed, made.get(each.id, 0)) for each in pair.trials}
            settled.append(pair)
    return settled


def _reduced_launches(schedule: Schedule[Trial, Launch]) -> dict[str, Sequence[LaunchTimes]]:
    return {each.id: reduced(each, schedule.records.get(each.id, ())) for each in schedule.configurations}


def _workloads(schedule: Schedule[Trial, Launch]) -> dict[str, str]:
    return {each.id: each.workload for each in schedule.configurations}


def _groups(schedule: Schedule[Trial, Launch]) -> Collection[Sequence[str]]:
    """Return the ids of trials that are ranked together."""
    groups: dict[str, list[str]] = {}
    for trial in schedule.configurations:
        groups.setdefault(trial.group, []).append(trial.id)
    return groups.values()
