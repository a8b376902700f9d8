"""What changed from one side to another: simultaneous ratios of step times, and what may explain them.

Launches are the unit, and how they spread is pooled over everything that both sides measured (decision 11). The
intervals of all pairs, and of their mean, are simultaneous by Šidák's level (decision 17).

Which subjects of two sides are the same configuration, and why the others have no counterpart.
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from steptime.analysis.ablation.form import gap
from steptime.analysis.compared.form import (
    ChangedFact,
    ChangeOfTrial,
    ChangeReport,
    ChangeVerdict,
    SideForm,
    Unpaired,
)
from steptime.analysis.compared.sides import UNKNOWN_FACT, ComparedSide, Subject
from steptime.errors import UsageError
from steptime.results.json_form import IntervalOverLaunches
from steptime.statistics.comparison import (
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

_MOST_DIFFERENCES = 3
"""Named of the nearest subject of the other side."""


@dataclass(frozen=True)
class Pairing:
    """Subjects of two sides, side by side."""

    pairs: Sequence[tuple[Subject, Subject]]
    unpaired: Sequence[Unpaired]


def pair(first: ComparedSide, second: ComparedSide) -> Pairing:
    """Return each subject of the first side with its counterpart in the second.

    A counterpart has the same identity and the same options. Where no subject has the same options, it is the only one
    that agrees in all options that both have: another version of a framework may bring options of its own.
    Of counterparts that could not be measured, or compute something else, the reason is kept.
    """
    there = {id(each): _counterparts(each, second.subjects) for each in first.subjects}
    back = {id(each): _counterparts(each, first.subjects) for each in second.subjects}
    pairs, unpaired = [], []
    for own in first.subjects:
        found = there[id(own)]
        if len(found) == 1 and len(back[id(found[0])]) == 1:
            reason = _problem(own, found[0], first, second)
            if reason is None:
                pairs.append((own, found[0]))
            else:
                broken = own.problem is None
                unpaired.append(_unpaired("first", own, reason, broken=broken))
        else:
            unpaired.append(_unpaired("first", own, _reason(own, found, second)))
    for other in second.subjects:
        found = back[id(other)]
        if not (len(found) == 1 and len(there[id(found[0])]) == 1):
            unpaired.append(_unpaired("second", other, _reason(other, found, first)))
    return Pairing(pairs, unpaired)


def name_of(subject: Subject) -> str:
    """Return a readable name of a configuration: by which a reader of a list distinguishes trials."""
    known = subject.identity
    workers = known.get("workers")
    parts = [
        " ".join(str(known[key]) for key in ("framework", "strategy") if key in known),
        known.get("workload"),
        f"{workers} worker{'' if workers == 1 else 's'}" if workers is not None else None,
        f"batch {known['batch_per_worker']}" if "batch_per_worker" in known else None,
    ]
    return ", ".join(str(part) for part in parts if part) or subject.id


def _counterparts(own: Subject, others: Sequence[Subject]) -> list[Subject]:
    same = [each for each in others if each.identity == own.identity]
    exact = [each for each in same if each.options == own.options]
    return exact or [each for each in same if not _differences(own.options, each.options, shared=True)]


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], *, shared: bool = False) -> list[str]:
    names = [name for name in one if name in other] if shared else list(dict.fromkeys([*one, *other]))
    return [name for name in names if one.get(name) != other.get(name)]


def _problem(own: Subject, other: Subject, first: ComparedSide, second: ComparedSide) -> str | None:
    problems = [(side.name, each.problem) for side, each in ((first, own), (second, other)) if each.problem]
    return "; ".join(f"in {name}: {problem}" for name, problem in problems) or None


def _reason(own: Subject, found: Sequence[Subject], other: ComparedSide) -> str:
    if found:
        options = dict.fromkeys(name for each in found for name in _differences(found[0].options, each.options))
        varied = f", which differ in {', '.join(options)}" if options else ""
        return f"{len(found)} trials of {other.name} fit it{varied}; choose with --by"
    if not other.subjects:
        return f"{other.name} has no trials"

    def apart(each: Subject) -> list[str]:
        return [*_differences(own.identity, each.identity), *_differences(own.options, each.options, shared=True)]

    nearest = min(other.subjects, key=lambda each: len(apart(each)))
    names = apart(nearest)
    mine, theirs = ({**each.options, **each.identity} for each in (own, nearest))
    shown = [f"{name} {_value(theirs.get(name))}, not {_value(mine.get(name))}" for name in names[:_MOST_DIFFERENCES]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{other.name} has no such trial; the nearest has {'; '.join(shown)}{more}"


def _value(value: Any) -> str:  # noqa: ANN401 - any value of a trial's field
    return "none" if value is None else str(value)


def _unpaired(side: Literal["first", "second"], subject: Subject, reason: str, *, broken: bool = False) -> Unpaired:
    return Unpaired(side=side, trial=subject.id, name=name_of(subject), reason=reason, broken=broken)


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
        threshold=threshold,
        fails=any(each.fails for each in trials),
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
    """Whether no change below the factor of ``is_undecided`` would have been shown."""
    smallest = smallest_change(comparison)
    return smallest is None or is_undecided(1.0, 1.0 + smallest) or is_undecided(comparison.low, comparison.high)


def _change(found: _Pair, name: str, levels: tuple[float, float], threshold: float | None) -> ChangeOfTrial:
    first, second = found.sides
    comparison, gate, launches, interleaved, sessions, decided = _compared(found, levels)
    surely = smallest_change(gate)
    steps = [float(np.exp(np.mean([launch.log_mean for launch in each]))) for each in launches]
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
        verdict=_verdict(comparison) if decided else "undecided",
        smallest_change=smallest_change(comparison) if decided else None,
        launches_to_decide=None if decided else launches_to_show(comparison, comparison.ratio - 1.0),
        power_at_threshold=None if threshold is None else power_to_show(comparison, threshold),
        launches_to_threshold=None if threshold is None else launches_to_show(comparison, threshold),
        fails=threshold is not None and gate.covers_launches and gate.low > 1.0 + threshold,
        gate_low=None if threshold is None else gate.low,
        smallest_failing=None if threshold is None or surely is None else (1.0 + threshold) * (1.0 + surely) - 1.0,
        gap=gap(first.id, first.breakdown, second.id, second.breakdown)
        if first.breakdown is not None and second.breakdown is not None
        else None,
        flags=list(dict.fromkeys([*first.flags, *second.flags])),
    )


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
        notes.append(
            f"{first.name} was measured {spans[0]} and {second.name} {spans[1]} (UTC), not interleaved: the "
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
