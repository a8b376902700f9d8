"""First steps of an attached script that are parts of what is one step later on.

Without a loader it shows only with the second of two rounds that were alike that optimizers take turns: until then each
update is a step of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from steptime.results.attached_lines import OtherWork, StepLine

_SUMMED = ("micro_steps", "dropped", "further", "left_out", "cost_ns")
_LISTED = ("backwards", "intervals", "optimizers")


def with_whole_rounds(steps: Sequence[StepLine]) -> list[StepLine]:
    """Return the steps of a process with those joined that are parts of a round, such as later steps have.

    The joined ones have the numbers before those of the others, which keep theirs.
    """
    first = max(range(len(steps)), key=lambda index: len(steps[index].optimizers), default=0)
    turn = list(steps[first].optimizers) if steps else []
    rounds = _rounds_of(steps[:first], turn) if len(turn) > 1 and "no_loader" in steps[0].flags else []
    if not rounds or [step.number for step in steps[:first]] != list(range(first)):
        return list(steps)
    begin = first - len(rounds)
    joined = [_joined(parts, steps[first], begin + index) for index, parts in enumerate(rounds)]
    return [*joined, *steps[first:]]


def _rounds_of(steps: Sequence[StepLine], turn: Sequence[int]) -> list[list[StepLine]]:
    """Return the parts of each round of updates by ``turn``; nothing unless ``steps`` are whole rounds in parts."""
    rounds: list[list[StepLine]] = []
    parts: list[StepLine] = []
    for step in steps:
        parts.append(step)
        updates = [optimizer for part in parts for optimizer in part.optimizers]
        if not step.optimizers or updates != list(turn[: len(updates)]):
            return []
        if len(updates) == len(turn):
            rounds.append(parts)
            parts = []
    return [] if parts or len(rounds) == len(steps) else rounds


def _joined(parts: Sequence[StepLine], later: StepLine, number: int) -> StepLine:
    """Return one step of ``parts``, with the amounts of a ``later`` one if parts have them: of one batch for all.

    What lies apart between parts is the step's own, as in later ones.
    """
    inside = [part.apart for part in parts[1:] if part.apart is not None]
    own: Sequence[StepLine | OtherWork] = [*parts, *inside]
    together: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    together |= {name: list(chain.from_iterable(getattr(part, name) for part in parts)) for name in _LISTED}
    return replace(
        parts[0],
        number=number,
        duration_ns=parts[-1].end_ns - parts[0].begin_ns,
        regions=_sums(chain.from_iterable(each.regions.items() for each in own)),
        gaps=_sums(chain.from_iterable(each.gaps.items() for each in own)),
        collectives=_collectives(parts),
        collections=_collections(parts),
        flags=list(dict.fromkeys(chain.from_iterable(part.flags for part in parts))),
        samples=later.samples if later.samples in {part.samples for part in parts} else None,
        tokens=later.tokens if later.tokens in {part.tokens for part in parts} else None,
        content=None,
        is_undivided=any(part.is_undivided for part in parts),
        **together,
    )


def _collections(parts: Sequence[StepLine]) -> tuple[int, int] | None:
    collected = [part.collections for part in parts if part.collections is not None]
    return (sum(count for count, _ in collected), max(longest for _, longest in collected)) if collected else None


def _sums(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, duration in entries:
        sums[name] = sums.get(name, 0) + duration
    return sums


def _collectives(parts: Sequence[StepLine]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        for name, (count, size, duration) in part.collectives.items():
            before = sums.get(name, (0, 0, 0))
            sums[name] = before[0] + count, before[1] + size, before[2] + duration
    return sums
