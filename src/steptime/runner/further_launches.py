"""Further launches of a budget, beyond the least of each trial: who gets them, and what another minute would settle."""

from collections.abc import Callable, Collection, Sequence

from steptime.results.records import Launch
from steptime.runner.block_runner import Schedule
from steptime.statistics.comparison import POWER
from steptime.statistics.launch_times import LaunchTimes
from steptime.statistics.stopping_rule import reduced
from steptime.statistics.undecided_pairs import UndecidedPair, settled_within, undecided_pairs, undecided_trials
from steptime.study.trial import Trial
from steptime.units import format_count, format_seconds

_MINUTE_S, _TOO_LONG_S = 60.0, 3600.0
"""What is offered, and beyond which nothing is."""
_NAMED = 3
"""So many pairs are named, the cheapest first."""
_NO_PAIR = "tell no pair apart"


def open_trials(schedule: Schedule[Trial, Launch], left_s: float | None = None) -> set[str]:
    """Return the ids of the trials that further launches are for.

    These are the trials of pairs that launches of ``left_s`` seconds would tell apart, the cheapest pairs first: a pair
    of long steps that hardly differ would take the time of all others and stay open. Where no pair is like that, those
    that are not told apart from another one. Trials that are compared with no other are among them.
    """
    groups, launches, workloads = _groups(schedule), _reduced_launches(schedule), _workloads(schedule)
    alone = {members[0] for members in groups if len(members) == 1}
    known = {each.id: schedule.expected_s(each) or 0.0 for each in schedule.configurations}
    more = {each.id: schedule.rule.most - schedule.count(each) for each in schedule.unfinished()}
    pairs = [
        pair
        for pair in undecided_pairs(launches, groups, workloads)
        if pair.needed is not None and pair.needed <= min(more.get(name, 0) for name in pair.trials)
    ]
    if settled := settled_within(pairs, left_s or 0.0, known.__getitem__):
        return alone.union(*(pair.trials for pair in settled))
    return alone | undecided_trials(launches, groups, workloads)


def what_more_launches_show(schedule: Schedule[Trial, Launch], launch_s: Callable[[Trial], float]) -> list[str]:
    """Say what another minute of launches would settle, or why nothing, behind the trials short of their least.

    Only pairs count of which both get further launches: a trial that is known as well as its study asks gets none.

    Args:
        schedule: of a run that its budget ended.
        launch_s: returns about how long a launch of a trial takes.
    """
    waiting = {trial.id: trial for trial in schedule.unfinished()}
    launches = _reduced_launches(schedule)
    if never := [name for name in waiting if not launches[name]]:
        names = "; ".join(waiting[name].in_words for name in never)
        return [f"another minute of launches would begin with {format_count(len(never), 'trial')} without any: {names}"]
    least = _lacking_launches(schedule)
    tied = undecided_pairs(launches, _groups(schedule), _workloads(schedule))
    pairs = [each for each in tied if waiting.keys() >= set(each.trials)]
    if not pairs:
        why = "those that are tied get no further launch (launches.max, target)" if tied else "no two trials are tied"
        return [*least, f"another minute of launches would only narrow intervals, and change no rank: {why}"]
    known = [each for each in pairs if each.needed is not None]
    if not known and all(len(launches[name]) == 1 for each in pairs for name in each.trials):
        return [*least, "what another minute would tell apart is unknown: one launch of a trial shows no spread"]
    if not known:
        return [*least, f"another minute of launches would {_NO_PAIR}: more than a thousand of each would be needed"]

    return [*least, _what_a_minute_settles(schedule, known, lambda name: launch_s(waiting[name]))]


def _lacking_launches(schedule: Schedule[Trial, Launch]) -> list[str]:
    names = "; ".join(each.in_words for each in schedule.configurations if schedule.lacks_least(each))
    return [f"fewer launches than launches.min={schedule.rule.least}, so far: {names}"] if names else []


def _what_a_minute_settles(
    schedule: Schedule[Trial, Launch], pairs: Sequence[UndecidedPair], seconds: Callable[[str], float]
) -> str:
    """Return the sentence about one or more pairs of which it is known how many launches they need."""
    settled = settled_within(pairs, _MINUTE_S, seconds)
    nearest = min(pairs, key=lambda pair: pair.seconds(seconds))
    if not settled and nearest.seconds(seconds) > _TOO_LONG_S:
        return f"an hour of launches would {_NO_PAIR}: they differ too little for how their launches spread"
    named = "; ".join(_describe(pair, schedule, pair.seconds(seconds)) for pair in settled[:_NAMED] or [nearest])
    if not settled:
        return f"another minute of launches would {_NO_PAIR}; the nearest: {named}"
    rest = f"; and {format_count(len(settled) - _NAMED, 'more pair')}" if len(settled) > _NAMED else ""
    return f"another minute of launches would tell apart, each with a chance of {100.0 * POWER:.0f} %: {named}{rest}"


def _describe(pair: UndecidedPair, schedule: Schedule[Trial, Launch], seconds: float) -> str:
    """Name trials, launches and time; and the study's key, where it allows for fewer launches."""
    both = [each for each in schedule.configurations if each.id in pair.trials]
    one, other = (trial.in_words for trial in both)
    if one == other:  # trials that differ in their options
        one, other = (trial.id for trial in both)
    needed = pair.needed or 0
    most = needed + max(map(schedule.count, both))
    more = format_count(needed, "more launch", "more launches")
    changed = f", with launches.max={most}" if most > schedule.rule.most else ""
    return f"{one}, and {other} ({more} of each, about {format_seconds(seconds)}{changed})"


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
