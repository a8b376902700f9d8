"""Collectives of traces of several ranks, divided into waiting and transfer.

A rank is in a collective from when it comes until all are done, so on the rank that comes last it is transfer alone:
the transfer of a collective is its least time over the ranks of its group, at the end of it, and the rest is waiting.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.imported.intervals import Intervals, difference, length, union, within

_FLOATS = NDArray[np.float64]
_SINGLE = ("send", "recv", "sendrecv")
"""In names of what is not of all ranks, or cannot be told from it."""
_ALIGNED = 0.95
"""Share of the collectives that must overlap on all ranks, or clocks are not aligned."""
_MOST_NAMES = 10_000


@dataclass(frozen=True)
class RankTrace:
    """The collectives of a rank in microseconds of its trace."""

    base_ns: int
    """Of the trace's clock: what is added to make it that of the host."""
    windows: Sequence[tuple[float, float]]
    """Of each step, where collectives are."""
    busy: Intervals
    """When something else is done, which hides them."""
    names: Sequence[str]
    groups: Mapping[str, tuple[int, ...]]
    """By name, the ranks; without those whose ranks are not on record."""
    rows: _FLOATS
    """Begin, end, and the index of the name of each, in the order of begins."""


@dataclass(frozen=True)
class CollectiveRecords:
    """What a file without steps has of the collectives of a rank."""

    rank: int
    enqueued: Mapping[str, int]
    """By process group, how many the rank has started so far."""
    seconds: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Of each, by communicator and kind, and its number."""


@dataclass
class TracedCollectives:
    """Collectives as they are read."""

    names: dict[str, int] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, kernel: str, begin: float, end: float, about: Mapping[str, Any]) -> None:
        """Keep one; its name is that of the collective, where the trace has it, else of its kernel."""
        group, kind = about.get("Process Group Name", ""), about.get("Collective name")
        name = f"{kind if isinstance(kind, str) else kernel.partition('(')[0]} {group}"
        if name not in self.names:
            if len(self.names) >= _MOST_NAMES:
                return
            ranks = about.get("Process Group Ranks")
            if isinstance(ranks, str) and "..." not in ranks and (known := _numbers(ranks)):
                self.groups[name] = known
        self.values.extend((begin, end, self.names.setdefault(name, len(self.names))))

    def traced(self, base_ns: int, windows: Sequence[tuple[float, float]], busy: Intervals) -> RankTrace:
        """Return all of them."""
        rows = np.frombuffer(self.values, dtype=np.float64).reshape(-1, 3) if self.values else np.empty((0, 3))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return RankTrace(base_ns, windows, busy, list(self.names), self.groups, rows)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.strip("[] ").split(",")
    return tuple(int(word) for word in words if word.strip().isdecimal() and len(word) < 10)  # noqa: PLR2004 - digits


def split_of_ranks(traces: Mapping[int, RankTrace], world: int) -> dict[int, list[tuple[float, float]]] | str:
    """Return waiting and transfer of each step of each rank in seconds, as far as nothing computes meanwhile.

    Args:
        traces: by rank.
        world: how many ranks train together.

    Returns why they are not known instead, where ranks are missing, or their collectives do not meet.
    """
    everyone = tuple(range(world))
    groups = {name: ranks for trace in traces.values() for name, ranks in trace.groups.items()}
    least: dict[tuple[str, int], float] = {}
    met = count = 0
    first = min((trace.base_ns for trace in traces.values()), default=0)
    own = {rank: _collectives_by_name(trace, first) for rank, trace in traces.items()}
    for name in sorted({name for by_name in own.values() for name in by_name}):
        ranks = groups.get(name, everyone)
        if reason := _mismatch(name, ranks, own):
            return reason
        begins, ends = (np.stack([own[rank][name][:, column] for rank in ranks]) for column in (0, 1))
        together = int((begins.max(axis=0) < ends.min(axis=0)).sum())
        met, count = met + together, count + begins.shape[1]
        least |= {(name, number): lasted for number, lasted in enumerate((ends - begins).min(axis=0).tolist())}
    if not met or met < _ALIGNED * count:
        return f"clocks of the ranks' traces are not aligned: {met} of {count} collectives overlap on all ranks"
    return {rank: _divided(trace, least) for rank, trace in traces.items()}


def _mismatch(name: str, ranks: Sequence[int], own: Mapping[int, Mapping[str, _FLOATS]]) -> str | None:
    """Return why the collectives of one name cannot be put beside one another; None if they can."""
    if any(word in name.lower() for word in _SINGLE):
        return f"ranks send to one another ({name.strip()}), which is not an exchange of all of them"
    if lacking := [rank for rank in ranks if rank not in own]:
        return f"no trace of rank {lacking[0]} is there, with which {name.strip()} exchanges"
    counts = {len(own[rank].get(name, ())) for rank in ranks}
    return f"the ranks' traces have {min(counts)} and {max(counts)} times {name.strip()}" if len(counts) > 1 else None


def _collectives_by_name(trace: RankTrace, first_ns: int) -> dict[str, _FLOATS]:
    """Return the collectives of each name in microseconds of the hosts' clocks since a moment."""
    rows = trace.rows.copy()
    rows[:, :2] += (trace.base_ns - first_ns) * 1e-3
    return {name: rows[rows[:, 2] == index] for index, name in enumerate(trace.names)}


def _divided(trace: RankTrace, least: Mapping[tuple[str, int], float]) -> list[tuple[float, float]]:
    counts: dict[float, int] = {}
    transfers = np.empty(len(trace.rows))
    for place, index in enumerate(trace.rows[:, 2].tolist()):
        number = counts[index] = counts.get(index, -1) + 1
        transfers[place] = least[trace.names[int(index)], number]
    ends = trace.rows[:, 1]
    moving = union(np.column_stack((np.maximum(ends - transfers, trace.rows[:, 0]), ends)))
    whole = union(trace.rows[:, :2])
    divided = []
    for since, until in trace.windows:
        busy = within(trace.busy, since, until)
        exposed = difference(within(whole, since, until), busy)
        transfer = length(difference(within(moving, since, until), busy))
        divided.append(((length(exposed) - transfer) * 1e-6, transfer * 1e-6))
    return divided
