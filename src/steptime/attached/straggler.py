"""Which ranks of an attached job the others wait for, and which part of their step is longer.

One rank is named by the steps in which it is the last to come (a sign test), or by how much more waiting it causes.
Several are named together, as those of a host, where each of them works longer than the rest, and all about alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

from steptime.attached.exchange import Exchange
from steptime.attached.form import StepPart, WaitedFor
from steptime.attached.judged_steps import judged_steps
from steptime.attached.sampled_lines import most_seen_line
from steptime.attached.step_parts import EXCHANGE, REGIONS, KeptSteps
from steptime.phases import REST
from steptime.statistics.interval import LEVEL, difference_within, effective_count, mean_within
from steptime.statistics.simultaneous import sidak_level

_BLAME = 0.5
"""Of all waiting, that a rank causes at least to be the one that is waited for."""
_EXPLAINS = 0.25
"""Of what the others wait, that a longer part explains at least to be named."""
_ALIKE = 0.5
"""Of how much longer some ranks work, the least distance of each of them to all others."""
_MOST_TIMES = 20
"""As many steps as there are, beyond which no number of further steps is named."""


def whom_ranks_wait_for(kept: KeptSteps, parts: Sequence[StepPart]) -> WaitedFor | None:
    """Return whom the ranks wait for, and which part takes it longer; None if waiting is not known or none is."""
    exchange = kept.exchange
    if exchange is None or exchange.caused_s.sum() <= 0.0:
        return None
    steps = judged_steps(exchange)
    judged = steps.judged
    caused = judged.caused_s.sum(axis=1)
    most = int(caused.argmax())
    last = _is_last(judged, most)
    slow = _slow_together(kept, exchange) or ([most] if _is_named(judged, most, last) else [])
    alone = len(slow) == 1
    waited = steps.usual.caused_s[most] if len(slow) < 2 else _waited(exchange, slow)  # noqa: PLR2004 - of one or none
    longer = _longer_part(kept, parts, slow, float(waited.mean())) if slow else _LongerPart()
    ranks = [kept.attempt.ranks[index] for index in slow]
    return WaitedFor(
        rank=ranks[0] if alone else None,
        ranks=ranks,
        hosts=_hosts(kept, ranks),
        most_causing=kept.attempt.ranks[most],
        caused_share=float(caused[most] / caused.sum()) if caused.any() else 0.0,
        last_in=int(last.sum()),
        more_steps=None if slow else _steps_to_name(judged, most, last),
        others_wait_s=difference_within(waited) if len(slow) > 1 else mean_within(waited),
        part=longer.name,
        part_s=longer.seconds,
        part_share=longer.share,
        where=longer.where,
    )


def _slow_together(kept: KeptSteps, exchange: Exchange) -> list[int]:
    """Return the places of two or more ranks, at most half of all, that the others wait for; none if none are shown.

    Ranks are parted where the time that they work differs most. Each of the slow ones works longer than the others do
    on average by more than chance accounts for, at the error that is allowed for claims about all ranks.
    """
    work = kept.length_s - exchange.waiting_s
    means = work.mean(axis=1)
    order = np.argsort(-means)
    distances = -np.diff(means[order])[: len(order) // 2]
    count = int(distances.argmax()) + 1
    slow, others = sorted(map(int, order[:count])), order[count:]
    longer = float(means[slow].mean() - means[others].mean())
    if count < 2 or distances[count - 1] < _ALIKE * longer or longer <= exchange.clock.uncertainty_s:  # noqa: PLR2004
        return []
    if exchange.caused_s[slow].sum() < _BLAME * exchange.caused_s.sum():
        return []
    level = sidak_level(LEVEL, len(order))
    lows = [difference_within(work[index] - work[others].mean(axis=0), level).low for index in slow]
    return slow if all(low is not None and low > 0.0 for low in lows) else []


def _waited(exchange: Exchange, slow: Sequence[int]) -> NDArray[np.float64]:
    """Return by how much longer the others wait in each step than some ranks do."""
    others = np.delete(exchange.waiting_s, slow, axis=0)
    return np.asarray(others.mean(axis=0) - exchange.waiting_s[list(slow)].mean(axis=0), dtype=np.float64)


def _hosts(kept: KeptSteps, ranks: Sequence[int]) -> list[str]:
    """Return the names of the hosts whose ranks these are, all of each; none if they are others, or of one host all."""
    owners = kept.attempt.hosts
    of_these = {owners[rank] for rank in ranks}
    whole = {rank for rank, owner in owners.items() if owner in of_these} == set(ranks)
    several = len(set(owners.values())) > 1
    return [owner.name for owner in sorted(of_these)] if whole and several else []


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


def is_last_beyond_chance(exchange: Exchange) -> bool:
    """Say whether some rank is the last to come in more steps than chance gives to equal ranks."""
    ranks = len(exchange.caused_s)
    lasts = [_is_last(exchange, rank) for rank in range(ranks)]
    return any(_is_too_often(effective_count(last), float(last.mean()), ranks) for last in lasts)


def _is_too_often(count: float, share: float, ranks: int) -> bool:
    """Say whether a share of so many independent steps is more than chance gives to the last one of equal ranks."""
    chance = scipy.special.betainc(share * count, (1.0 - share) * count + 1.0, 1.0 / ranks) if share > 0.0 else 1.0
    return bool(chance < 1.0 - sidak_level(LEVEL, 2 * ranks))


def _steps_to_name(exchange: Exchange, rank: int, last: NDArray[np.float64]) -> int | None:
    """Return how many more steps would name a rank that stays last as often; None if steps do not help."""
    share, ranks, count = float(last.mean()), len(exchange.caused_s), len(last)
    if not _can_be_named(exchange, rank):
        return None
    worth = effective_count(last) / count
    enough = (more for more in range(1, _MOST_TIMES * count) if _is_too_often(worth * (count + more), share, ranks))
    return next(enough, None)


class _LongerPart(NamedTuple):
    name: str | None = None
    seconds: float | None = None
    share: float | None = None
    """Of what the others take."""
    where: str | None = None


def _longer_part(kept: KeptSteps, parts: Sequence[StepPart], slow: Sequence[int], waited_s: float) -> _LongerPart:
    """Return the part that takes some ranks longest beyond the others, by how much, and the line in which it is."""
    longer, shares = {}, {}
    for part in parts:
        if part.name in ("comm_exposed", "sync_wait", EXCHANGE, REST) or part.reason:
            continue
        others = [value for rank, value in enumerate(part.ranks_s) if rank not in slow and value is not None]
        own = [value for rank in slow if (value := part.ranks_s[rank]) is not None]
        if own and others:
            usual = float(np.mean(others))
            longer[part.name] = float(np.mean(own)) - usual
            shares[part.name] = longer[part.name] / usual if usual > 0.0 else None
    name = max(longer, key=longer.__getitem__, default=None)
    if name is None or longer[name] < _EXPLAINS * waited_s:
        return _LongerPart()
    processes = [kept.attempt.processes[kept.attempt.ranks[index]] for index in slow]
    where = most_seen_line(processes, REGIONS.get(name, (name,)))
    return _LongerPart(name, longer[name], shares[name], where)
