"""Which rank of an attached job the others wait for, and which part of its step is longer than theirs.

A rank is named by the steps in which it is the last to come (a sign test), or by how much more waiting it causes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc  # type: ignore[import-untyped]  # scipy ships no types

from steptime.attached.exchange import Exchange
from steptime.attached.form import StepPart, WaitedFor
from steptime.attached.step_parts import EXCHANGE, REGIONS, KeptSteps, most_seen_line
from steptime.phases import REST
from steptime.statistics.interval import LEVEL, difference_within, effective_count, mean_within
from steptime.statistics.simultaneous import sidak_level

_BLAME = 0.5
"""Of all waiting, that a rank causes at least to be the one that is waited for."""
_EXPLAINS = 0.25
"""Of what the others wait, that a longer part explains at least to be named."""
_MOST_TIMES = 20
"""As many steps as there are, beyond which no number of further steps is named."""


def whom_ranks_wait_for(kept: KeptSteps, parts: Sequence[StepPart]) -> WaitedFor | None:
    """Return whom the ranks wait for, and which part takes it longer; None if waiting is not known or none is."""
    exchange = kept.exchange
    if exchange is None or exchange.caused_s.sum() <= 0.0:
        return None
    caused = exchange.caused_s.sum(axis=1)
    most = int(caused.argmax())
    last = _is_last(exchange, most)
    named = _is_named(exchange, most, last)
    name, longer, where = _longer_part(kept, parts, most) if named else (None, None, None)
    return WaitedFor(
        rank=kept.attempt.ranks[most] if named else None,
        most_causing=kept.attempt.ranks[most],
        caused_share=float(caused[most] / caused.sum()),
        last_in=int(last.sum()),
        more_steps=None if named else _steps_to_name(exchange, most, last),
        others_wait_s=mean_within(exchange.caused_s[most]),
        part=name,
        part_s=longer,
        where=where,
    )


def _is_last(exchange: Exchange, rank: int) -> NDArray[np.float64]:
    """Return 1 for each step in which the others wait longest for this rank, else 0."""
    return np.asarray((exchange.caused_s.argmax(axis=0) == rank) & exchange.caused_s.any(axis=0), dtype=np.float64)


def _can_be_named(exchange: Exchange, rank: int) -> bool:
    caused = exchange.caused_s[rank]
    return bool(caused.sum() >= _BLAME * exchange.caused_s.sum() and caused.mean() > exchange.clock.uncertainty_s)


def _is_named(exchange: Exchange, rank: int, last: NDArray[np.float64]) -> bool:
    """Say whether a rank causes at least half of all waiting, and more than chance and clocks can account for.

    By the steps in which it is last, or by how much more waiting it causes than the others do on average: each at half
    the error that is allowed for claims about all ranks.
    """
    if not _can_be_named(exchange, rank):
        return False
    ranks = len(exchange.caused_s)
    others = (exchange.caused_s.sum(axis=0) - exchange.caused_s[rank]) / (ranks - 1)
    low = difference_within(exchange.caused_s[rank] - others, sidak_level(LEVEL, 2 * ranks)).low
    return (low is not None and low > 0.0) or _is_too_often(effective_count(last), float(last.mean()), ranks)


def _is_too_often(count: float, share: float, ranks: int) -> bool:
    """Say whether a share of so many independent steps is more than chance gives to the last one of equal ranks."""
    chance = betainc(share * count, (1.0 - share) * count + 1.0, 1.0 / ranks) if share > 0.0 else 1.0
    return bool(chance < 1.0 - sidak_level(LEVEL, 2 * ranks))


def _steps_to_name(exchange: Exchange, rank: int, last: NDArray[np.float64]) -> int | None:
    """Return how many more steps would name a rank that stays last as often; None if steps do not help."""
    share, ranks, count = float(last.mean()), len(exchange.caused_s), len(last)
    if not _can_be_named(exchange, rank):
        return None
    worth = effective_count(last) / count
    enough = (more for more in range(1, _MOST_TIMES * count) if _is_too_often(worth * (count + more), share, ranks))
    return next(enough, None)


def _longer_part(kept: KeptSteps, parts: Sequence[StepPart], index: int) -> tuple[str | None, float | None, str | None]:
    """Return the part that takes a rank longest beyond the others, by how much, and the line in which it is."""
    exchange = kept.exchange
    assert exchange is not None  # noqa: S101 - for the type checker
    longer = {}
    for part in parts:
        if part.name in ("comm_exposed", "sync_wait", EXCHANGE, REST) or part.reason:
            continue
        others = [value for rank, value in enumerate(part.ranks_s) if rank != index and value is not None]
        own = part.ranks_s[index]
        if own is not None and others:
            longer[part.name] = own - float(np.mean(others))
    name = max(longer, key=longer.__getitem__, default=None)
    if name is None or longer[name] < _EXPLAINS * float(exchange.caused_s[index].mean()):
        return None, None, None
    process = kept.attempt.processes[kept.attempt.ranks[index]]
    return name, longer[name], most_seen_line([process], REGIONS.get(name, (name,)))
