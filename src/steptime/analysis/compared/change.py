"""What changed from one side to another: simultaneous ratios of step times, and what may explain them.

Launches are the unit, and how they spread is pooled over everything that both sides measured (decision 11). The
intervals of all pairs, and of their mean, are simultaneous by Šidák's level (decision 17).
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from steptime.analysis.ablation.form import gap
from steptime.analysis.compared.changed_parts import changed_parts
from steptime.analysis.compared.counterparts import name_of, pair
from steptime.analysis.compared.form import (
    MOST_EXCLUDED,
    ChangedFact,
    ChangeOfTrial,
    ChangeReport,
    ChangeVerdict,
    Order,
    Outcome,
    SideForm,
    Unpaired,
)
from steptime.analysis.compared.sides import UNKNOWN_FACT, ComparedSide, Subject
from steptime.errors import UsageError
from steptime.results.json_form import IntervalOverLaunches
from steptime.statistics.comparison import (
    POWER,
    Comparison,
    compare,
    launches_to_show,
    power_to_show,
    sharing_blocks,
    smallest_change,
)
from steptime.statistics.interval import LEVEL, from_log
from steptime.statistics.launch_spread import TrialSpread, pool_spread, pooled_error
from steptime.statistics.launch_times import LaunchTimes, by_block, sessions_of
from steptime.statistics.simultaneous import sidak_level
from steptime.units import is_undecided

OUTCOMES: tuple[Outcome, ...] = ("failed", "undecided", "passed")
"""The one that counts for several trials first."""
GATE_LEVEL = 0.99
"""Of the bounds that decide whether a comparison fails: one that is repeated every night must not fail by chance."""
_MINUTES = 16
"""Letters of a moment in ISO 8601 up to its minute."""
_MOST_SHOWN = 3
"""Reasons in an error."""


def change_between(first: ComparedSide, second: ComparedSide, threshold: float | None = None) -> ChangeReport:
    """Return what changed from ``first``, the baseline, to ``second``.

    Sides of one source are compared within the randomised blocks that both ran in, where what drifts hits both alike.
    Sides that ran at different times are compared as two sessions, whose intervals more launches hardly narrow
    (``comparison.compare``, with ``apart``).

    Args:
        first: the baseline.
        second: what is compared with it.
        threshold: the relative slowdown that fails the comparison, as 0.05; None fails none.

    Raises UsageError with the reasons where nothing can be compared.
    """
    second = _without_copies(first, second)
    pairing = pair(first, second)
    if not pairing.pairs:
        raise UsageError(_nothing(first, second, pairing.unpaired))
    interleaved = first.source == second.source
    offset = 0 if interleaved else 1 + max((each.block for each in _launches(first.company)), default=0)
    later = [_moved(each, offset) for each in second.company]
    groups = {"first": first.company, "second": [] if interleaved else later}
    sound = {f"{side} {each.id}": each for side, own in groups.items() for each in own if each.problem is None}
    spreads = pool_spread(
        {name: each.launches for name, each in sound.items()},
        {name: str(each.identity.get("workload")) for name, each in sound.items()},
    )
    pairs = [
        _Pair(own, _moved(other, offset), _spreads_of(spreads, own, other, interleaved=interleaved))
        for own, other in pairing.pairs
    ]
    claims = len(pairs) + (len(pairs) > 1)
    levels = sidak_level(LEVEL, claims), sidak_level(GATE_LEVEL, claims)
    names = _names([each.first for each in pairs])
    trials = [_change(each, name, levels, threshold) for each, name in zip(pairs, names, strict=True)]
    software = _software(pairs, first, second)
    hardware = _facts(first.hardware, second.hardware)
    return ChangeReport(
        first=_side(first),
        second=_side(second),
        level=LEVEL,
        gate_level=GATE_LEVEL,
        interleaved=all(each.interleaved for each in trials),
        order=_order(first, second, trials),
        threshold=threshold,
        fails=any(each.fails for each in trials),
        outcome=_together(trials),
        overall=_overall(pairs, levels[0]),
        trials=trials,
        unpaired=list(pairing.unpaired),
        software=software,
        hardware=hardware,
        notes=_notes(first, second, trials, (software, hardware), spreads.values()),
    )


def _without_copies(first: ComparedSide, second: ComparedSide) -> ComparedSide:
    """Return the second side without the launches that the first has as well: a copy repeats nothing."""
    if first.source == second.source:
        return second
    known = {each.steady_s.tobytes() for each in _launches(first.company)}
    subjects, company = ([_own(each, known, first.name) for each in own] for own in (second.subjects, second.company))
    return replace(second, subjects=subjects, company=company)


def _own(subject: Subject, known: Container[bytes], name: str) -> Subject:
    own = [each for each in subject.launches if each.steady_s.tobytes() not in known]
    copies = len(subject.launches) - len(own)
    if not copies:
        return subject
    flag = f"{copies} of {len(subject.launches)} launches left out: copies of launches of {name}"
    return replace(
        subject, launches=own, flags=[*subject.flags, flag], problem=subject.problem or (None if own else flag)
    )


class _Pair(NamedTuple):
    """A configuration as both sides measured it, with the pooled spread of its launches if there is one."""

    first: Subject
    second: Subject
    spreads: tuple[TrialSpread, TrialSpread] | None

    @property
    def sides(self) -> tuple[Subject, Subject]:
        return self.first, self.second

    @property
    def log_ratio(self) -> float:
        first, second = (np.mean([launch.log_mean for launch in each.launches]) for each in self.sides)
        return float(second - first)


class _Compared(NamedTuple):
    """How a pair compares, and what its launches can decide."""

    comparison: Comparison
    gate: Comparison
    launches: tuple[Sequence[LaunchTimes], Sequence[LaunchTimes]]
    interleaved: int
    sessions: tuple[int, int]
    decided: bool


def _compared(found: _Pair, levels: tuple[float, float]) -> _Compared:
    first, second = (each.launches for each in found.sides)
    common = {launch.block for launch in first} & {launch.block for launch in second}
    spreads = found.spreads and found.spreads[::-1]
    comparison, gate = (compare(second, first, level, spreads, apart=not common) for level in levels)
    before = sessions_of(first)
    later = sessions_of(second, len(before))
    several = len(before) + len(later) > 2  # noqa: PLR2004 - one of each side
    own = sharing_blocks(first, second)
    if several and not common:
        comparison, own = compare(later, before, levels[0]), (before, later)
    decided = (several or bool(common)) and not (comparison.undecided and _shows_little(comparison))
    return _Compared(comparison, gate, own, len(common), (len(before), len(later)), decided)


def _shows_little(comparison: Comparison) -> bool:
    """Whether no change below ``MOST_EXCLUDED`` would have been shown."""
    smallest = smallest_change(comparison)
    return smallest is None or smallest > MOST_EXCLUDED or is_undecided(comparison.low, comparison.high)


def _change(found: _Pair, name: str, levels: tuple[float, float], threshold: float | None) -> ChangeOfTrial:
    first, second = found.sides
    comparison, gate, launches, interleaved, sessions, decided = _compared(found, levels)
    surely = smallest_change(gate)
    steps = [float(np.exp(np.mean([launch.log_mean for launch in each]))) for each in launches]
    verdict = _verdict(comparison) if decided else "undecided"
    chance = None if threshold is None else power_to_show(comparison, threshold)
    fails = threshold is not None and gate.covers_launches and gate.low > 1.0 + threshold
    return ChangeOfTrial(
        name=name,
        first=first.id,
        second=second.id,
        configuration={**first.identity, "options": dict(first.options)},
        first_step_s=steps[0],
        second_step_s=steps[1],
        launches=(len(first.launches), len(second.launches)),
        interleaved=interleaved,
        sessions=sessions,
        ratio=comparison.interval,
        verdict=verdict,
        smallest_change=smallest_change(comparison) if decided else None,
        launches_to_decide=None if decided else launches_to_show(comparison, comparison.ratio - 1.0),
        power_at_threshold=chance,
        launches_to_threshold=None if threshold is None else _further(comparison, threshold, chance),
        fails=fails,
        outcome=None if threshold is None else "failed" if fails else _unfailed(comparison, verdict, threshold, chance),
        gate_low=None if threshold is None else gate.low,
        smallest_failing=None if threshold is None or surely is None else (1.0 + threshold) * (1.0 + surely) - 1.0,
        gap=gap(first.id, first.breakdown, second.id, second.breakdown)
        if first.breakdown is not None and second.breakdown is not None
        else None,
        parts=changed_parts(first.parts_s, second.parts_s, in_turns=bool(interleaved)),
        flags=list(dict.fromkeys([*first.flags, *second.flags])),
    )


def _further(comparison: Comparison, threshold: float, chance: float | None) -> int | None:
    """Return about how many more launches of each side show the threshold with ``POWER``: some where these do not."""
    more = launches_to_show(comparison, threshold)
    return 1 if more == 0 and chance is not None and chance < POWER else more


def _unfailed(comparison: Comparison, verdict: ChangeVerdict, threshold: float, chance: float | None) -> Outcome:
    """Return whether a slowdown beyond the threshold is excluded, or would have been shown."""
    known = verdict != "undecided" and comparison.covers_launches
    shown = chance is not None and chance >= POWER
    return "passed" if known and (shown or comparison.high <= 1.0 + threshold) else "undecided"


def _together(trials: Sequence[ChangeOfTrial]) -> Outcome | None:
    """Return the outcome of all trials; None without a threshold."""
    outcomes = {trial.outcome for trial in trials}
    return next((outcome for outcome in OUTCOMES if outcome in outcomes), None)


def _order(first: ComparedSide, second: ComparedSide, trials: Sequence[ChangeOfTrial]) -> Order:
    if all(each.interleaved for each in trials):
        return "turns" if first.by_turns else "same blocks"
    known = first.started and second.started
    if known and (first.started[-1] < second.started[0] or second.started[-1] < first.started[0]):
        return "one after the other"
    return "unknown"


def _verdict(comparison: Comparison) -> ChangeVerdict:
    if comparison.tied:
        return "no difference"
    return "slower" if comparison.low > 1.0 else "faster"


def _overall(pairs: Sequence[_Pair], level: float) -> IntervalOverLaunches | None:
    """Return the geometric mean of the ratios of several pairs; None unless their spread is pooled."""
    if len(pairs) == 1:
        return None
    shares: list[tuple[TrialSpread, Mapping[Hashable, float]]] = []
    sides = [{block for each in pairs for block in by_block(each.sides[index].launches)} for index in (0, 1)]
    apart = sides[0].isdisjoint(sides[1])
    sessions: dict[Hashable, int] | None = None
    if apart:
        sessions = {block: number for number, blocks in enumerate(sides) for block in blocks}
    for each in pairs:
        if each.spreads is None:
            return None
        for subject, spread, sign in zip(each.sides, each.spreads, (-1.0, 1.0), strict=True):
            share = sign / len(pairs) / len(subject.launches)
            shares.append((spread, dict.fromkeys(by_block(subject.launches), share)))
    ratios = np.array([each.log_ratio for each in pairs])
    centre, half_width = float(ratios.mean()), pooled_error(shares, level, sessions=sessions).half_width
    return IntervalOverLaunches(
        *map(from_log, (centre, centre - half_width, centre + half_width, float(ratios.min()), float(ratios.max())))
    )


def _spreads_of(
    spreads: Mapping[str, TrialSpread], first: Subject, second: Subject, *, interleaved: bool
) -> tuple[TrialSpread, TrialSpread] | None:
    own = spreads.get(f"first {first.id}")
    other = spreads.get(f"{'first' if interleaved else 'second'} {second.id}")
    return (own, other) if own and other else None


def _moved(subject: Subject, blocks: int) -> Subject:
    """Return a subject whose blocks have other numbers than those of another source."""
    return replace(subject, launches=[replace(each, block=each.block + blocks) for each in subject.launches])


def _launches(subjects: Iterable[Subject]) -> Iterable[LaunchTimes]:
    return chain.from_iterable(each.launches for each in subjects)


def _names(subjects: Sequence[Subject]) -> list[str]:
    """Return the names of configurations, with whatever else they differ in where two would have the same."""
    names = [name_of(each) for each in subjects]
    for name in {each for each in names if names.count(each) > 1}:
        alike = [index for index, each in enumerate(names) if each == name]
        settings = {index: {**subjects[index].options, **subjects[index].identity} for index in alike}
        keys = dict.fromkeys(chain.from_iterable(settings.values()))
        varied = [key for key in keys if len({str(settings[index].get(key)) for index in alike}) > 1]
        for index in alike:
            names[index] = ", ".join([name, *(f"{key}={settings[index].get(key)}" for key in varied)])
    return names


def _software(pairs: Sequence[_Pair], first: ComparedSide, second: ComparedSide) -> list[ChangedFact]:
    """Return what differs in the software of the machines and of the pairs.

    Facts of a framework have its name where there are several. Where the sides are two frameworks, whose libraries
    differ anyway, what only one of them has is left out.
    """
    found: dict[tuple[str, str | None, str | None], dict[str, None]] = {}
    frameworks = [str(each.first.identity.get("framework", "")) for each in pairs]
    sides = [(each.first.software, each.second.software) for each in pairs]
    for owner, (one, other) in zip(["", *frameworks], [(first.system, second.system), *sides], strict=True):
        for each in _facts(one, other):
            if (each.first and each.second) or all(frameworks):
                found.setdefault((each.fact, each.first, each.second), {})[owner] = None
    named = len(set(frameworks)) > 1
    return [
        ChangedFact(fact=f"{fact} ({', '.join(owners)})" if named and all(owners) else fact, first=before, second=after)
        for (fact, before, after), owners in found.items()
    ]


def _facts(first: Mapping[str, str], second: Mapping[str, str]) -> list[ChangedFact]:
    return [
        ChangedFact(fact=fact, first=first.get(fact), second=second.get(fact))
        for fact in dict.fromkeys([*first, *second])
        if first.get(fact) != second.get(fact) and UNKNOWN_FACT not in (first.get(fact), second.get(fact))
    ]


def _side(side: ComparedSide) -> SideForm:
    started, ended = (side.started[0], side.started[-1]) if side.started else (None, None)
    return SideForm(name=side.name, source=side.source, trials=len(side.subjects), started_at=started, ended_at=ended)


def _notes(
    first: ComparedSide,
    second: ComparedSide,
    trials: Sequence[ChangeOfTrial],
    changed: tuple[Sequence[ChangedFact], Sequence[ChangedFact]],
    spreads: Iterable[TrialSpread],
) -> list[str]:
    notes = []
    software, hardware = changed
    if not all(each.interleaved for each in trials):
        spans = [
            f"from {each.started[0][:_MINUTES]} to {each.started[-1][:_MINUTES]}"
            if each.started
            else "at unknown times"
            for each in (first, second)
        ]
        after = _order(first, second, trials) == "one after the other"
        apart = "one after the other" if after else "and a launch of each did not follow by turns"
        notes.append(
            f"{first.name} was measured {spans[0]} and {second.name} {spans[1]} (UTC), {apart}: the "
            "machine may have changed in between, which only further sessions, more than an hour apart, or turns can "
            "show; steptime run --environments measures two environments in the same blocks, and runs of two scripts "
            "that take turns count as blocks"
        )
        if any(each.blocks.drifted for each in spreads):
            notes.append("the machine drifted from block to block within the sides, which widens all intervals")
    if software and hardware:
        notes.append(
            "software and hardware both changed, and these two sides cannot show which of them made the difference: "
            f"measure the software of {second.name} on the machine of {first.name}, and compare it with each"
        )
    if not software and not hardware:
        notes.append("no recorded fact of software or hardware differs")
    unchecked = [each.name for each in (first, second) if not each.checked]
    if unchecked:
        notes.append(
            f"no equivalence check in {' and '.join(dict.fromkeys(unchecked))}: whether both sides compute the same is "
            "unknown"
        )
    if any(max(each.launches) == 1 for each in trials):
        notes.append("single launches do not show how launches differ: launch each trial three times or more")
    return notes


def _nothing(first: ComparedSide, second: ComparedSide, unpaired: Sequence[Unpaired]) -> str:
    sides = {"first": first.name, "second": second.name}
    mirrored = {each.name for each in unpaired if each.side == "first"}
    others = [each for each in unpaired if each.side == "first" or each.name not in mirrored]
    shown = [f"{each.name} of {sides[each.side]}: {each.reason}" for each in others[:_MOST_SHOWN]]
    return f"no trial of {first.name} can be compared with one of {second.name} ({'; '.join(shown)})"
