"""Which subjects of two sides are the same configuration, and why the others have no counterpart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steptime.analysis.compared.form import Unpaired
from steptime.analysis.compared.sides import ComparedSide, Subject

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
