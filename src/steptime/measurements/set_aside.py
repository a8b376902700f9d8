"""Lines of a results folder that no number rests on: each stays in its file, and is named with the reason."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from steptime.measurements.json_form import JsonForm

Reason = Literal[
    "damaged", "other_trial", "repeated", "workers", "host", "facts", "steps", "clock", "duration", "unfilled"
]
REASONS: dict[Reason, str] = {
    "damaged": "damaged",
    "other_trial": "of another trial",
    "repeated": "the same launch again",
    "workers": "with workers missing or doubled",
    "host": "on other hosts",
    "facts": "with facts that contradict the trial",
    "steps": "with different numbers of steps",
    "clock": "with a clock that goes back",
    "duration": "longer than their launch",
    "unfilled": "with steps much shorter than the time that they took",
}
"""Why a line is not used, in the order in which it is examined."""


class SetAside(JsonForm):
    """A line of records that no number rests on."""

    file: str
    line: int
    """From 1."""
    reason: Reason
    """``damaged``, ``other_trial``, ``repeated``, ``workers``, ``host``, ``facts``, ``steps``, ``clock``,
    ``duration`` or ``unfilled``."""
    message: str


def counted(found: Iterable[SetAside]) -> str:
    """Return how many lines were set aside for which reason: ``2 the same launch again, 1 damaged``."""
    counts = Counter(each.reason for each in found)
    return ", ".join(f"{counts[reason]} {words}" for reason, words in REASONS.items() if counts[reason])


def sentences(found: Iterable[SetAside]) -> list[str]:
    """Return a sentence for all lines of a file with which the same is wrong."""
    groups: dict[tuple[str, Reason, str], list[int]] = {}
    for each in found:
        groups.setdefault((each.file, each.reason, each.message), []).append(each.line)
    return [_sentence(file, reason, message, lines) for (file, reason, message), lines in groups.items()]


def _sentence(file: str, reason: Reason, message: str, lines: Sequence[int]) -> str:
    several = len(lines) > 1
    place = f"{file}, line{'s' if several else ''} {_ranges(lines)}"
    if reason == "damaged":
        return f"{place} {'are' if several else 'is'} damaged and {'were' if several else 'was'} skipped ({message})"
    return f"{place} {'were' if several else 'was'} set aside: {message}"


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ``3 to 6, 9``."""
    starts = [numbers[0], *(later for earlier, later in pairwise(numbers) if later != earlier + 1)]
    ends = [*(earlier for earlier, later in pairwise(numbers) if later != earlier + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)
    )
