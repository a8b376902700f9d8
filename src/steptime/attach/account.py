"""Where the time of a step went: sums by region and gap, and collectives; entries after an update wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch_amount import BatchAmount

# Entries that wait at most; beyond, the older half is settled by what is known then.
WAITING = 4096
INTERVALS = 48
ALL_INTERVALS = 512
# Of the first steps, and of every so many, all intervals of collectives are kept.
FIRST, SAMPLED = 64, 8

REGION, GAP, COLLECTIVE = 0, 1, 2
EPOCH = "epoch"  # the region of a request, or of a call, that found no batch


class TimeSums:
    """Sums over one step, or over the part of it that is apart."""

    __slots__ = ("amount", "collectives", "elsewhere", "gaps", "intervals", "regions")

    def __init__(self) -> None:
        self.regions: dict[str, int] = {}
        self.gaps: dict[str, int] = {}
        self.collectives: dict[str, list[int]] = {}
        self.intervals: list[tuple[str, int, int, int]] = []
        self.amount: BatchAmount | None = None  # of the batches that the step trains on
        self.elsewhere: list[int] = []  # of loaders asked in another thread: batches, and nanoseconds

    def add_batch(self, amount: BatchAmount | None) -> None:
        """Add what a batch holds, where its loader's batches are looked at."""
        if amount is None:
            return
        self.amount = amount if self.amount is None else self.amount.plus(amount)

    def add(self, entry: tuple[Any, ...]) -> None:
        """Add an entry: its begin, its table, its name and its nanoseconds; of a collective also its kind and bytes."""
        table = entry[1]
        if table == COLLECTIVE:
            begin, _, name, duration, kind, size = entry
            sums = self.collectives.setdefault(name, [0, 0, 0])
            sums[0] += 1
            sums[1] += size
            sums[2] += duration
            if len(self.intervals) < ALL_INTERVALS:
                self.intervals.append((kind, size, begin, begin + duration))
            return
        sums_of = self.regions if table == REGION else self.gaps
        sums_of[entry[2]] = sums_of.get(entry[2], 0) + entry[3]

    def in_unmarked_code(self) -> int:
        """Return the time that a line of the script explains: gaps, passes without gradient, and waits for input."""
        return sum(self.gaps.values()) + sum(self.regions.get(name, 0) for name in ("nograd", "input"))

    def form(self, number: int) -> dict[str, Any]:
        """Return what a line of step ``number`` has of it."""
        line: dict[str, Any] = {"regions": self.regions, "gaps": self.gaps}
        if self.collectives:
            line["collectives"] = self.collectives
            line["intervals"] = (
                self.intervals if number < FIRST or number % SAMPLED == 0 else self.intervals[:INTERVALS]
            )
        if self.amount is not None:
            line.update(self.amount.form())
        if self.elsewhere:
            line["elsewhere"] = self.elsewhere
        return line


class Apart:
    """The time of evaluation and other work without gradient, from its first to its last."""

    __slots__ = ("account", "begin", "end")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.account = TimeSums()

    def joined(self, other: Apart | None) -> Apart:
        """Return this one with the sums of ``other``, as if both were one after the other."""
        if other is not None:
            self.end += other.end - other.begin
            self.add(other)
        return self

    def add(self, other: Apart) -> None:
        """Add the sums of ``other``."""
        for table in ("regions", "gaps"):
            sums, further = getattr(self.account, table), getattr(other.account, table)
            for name, duration in further.items():
                sums[name] = sums.get(name, 0) + duration

    @property
    def evaluation_ns(self) -> int:
        """How long evaluations took that belong to no step: set-up between two of them is none."""
        regions, gaps = self.account.regions, self.account.gaps
        if "nograd" not in regions and "compile" not in regions:  # a look at a batch
            return 0
        beside = sum(duration for name, duration in gaps.items() if "nograd" in name.split(">"))
        return sum(regions.values()) - regions.get("save", 0) + beside

    def form(self) -> dict[str, Any]:
        """Return what the line of its step has of it."""
        return {"begin_ns": self.begin, "end_ns": self.end, "regions": self.account.regions, "gaps": self.account.gaps}


class Ledger:
    """The accounts of the step that goes on, and the entries since its update, whose step is known later.

    After an update the next request may already be the next step's, or an evaluation's: entries wait until the boundary
    is known, and then go by their begin to the step before, to the step after, or to what is apart in either.
    """

    def __init__(self) -> None:
        self.account = TimeSums()
        self.apart: Apart | None = None  # in this step, before its first forward
        self.after: Apart | None = None  # since its update, in this step or the next
        self.waiting: list[tuple[Any, ...]] = []
        self.waits = True  # before the first step, and after an update

    def add(self, entry: tuple[Any, ...]) -> None:
        """Add an entry of ``TimeSums.add``."""
        if not self.waits:
            self.account.add(entry)
            return
        self.waiting.append(entry)
        if len(self.waiting) > WAITING:
            half, self.waiting = self.waiting[: WAITING // 2], self.waiting[WAITING // 2 :]
            self._settle(half, self.account, self.after)

    def extend_apart(self, begin: int, end: int) -> None:
        """Note that ``begin`` to ``end`` is apart, with all between it and what was apart since the update."""
        if self.after is None:
            self.after = Apart(begin, end)
        else:
            self.after.begin = min(self.after.begin, begin)
            self.after.end = max(self.after.end, end)

    def own_from(self, begin: int) -> None:
        """Note that what waits from ``begin`` on is the next step's own, as passes of the batch that it trains on."""
        if self.after is not None:
            self.after.end = min(self.after.end, begin)
            self.after = self.after if self.after.begin < begin else None

    def begin_first(self, begin: int) -> tuple[TimeSums, Apart | None]:
        """Begin the first step at ``begin``, all behind which is its own; return what was before: it is in no step."""
        if self.after is not None:
            self.after.end = min(self.after.end, begin)
        return self.divide(begin)

    def set_apart(self, begin: int, end: int) -> None:
        """Set apart what the step has from its ``begin`` to ``end``: forward passes that nothing was trained by."""
        entries, self.waiting, self.waits = self.waiting, [], False
        former, self.apart, self.after = self.apart, Apart(begin, end), None
        self.apart.account, self.account = self.account, TimeSums()
        if former is not None:
            self.apart.add(former)
        self._settle([entry for entry in entries if entry[0] < end], self.apart.account, None)
        self._settle([entry for entry in entries if entry[0] >= end], self.account, None)
        regions = self.apart.account.regions
        if "forward" in regions:
            regions["nograd"] = regions.get("nograd", 0) + regions.pop("forward")

    def resume(self, *, keeps_apart: bool = False) -> None:
        """Go on with the step: what waited is its own, and nothing of it apart unless it ``keeps_apart`` that."""
        entries, self.waiting = self.waiting, []
        apart, self.after, self.waits = self.after, None, False
        if keeps_apart and apart is not None:
            self.apart = apart.joined(self.apart)
            self._settle(entries, self.account, self.apart)
            return
        if apart is not None:  # of a long one the older half may be settled already
            entries += [(0, REGION, *item) for item in apart.account.regions.items()]
            entries += [(0, GAP, *item) for item in apart.account.gaps.items()]
        for entry in entries:
            self.account.add(entry)

    def keep_passes(self) -> None:
        """Note that what waits is the next step's own, unless an evaluation has asked a loader in it."""
        asked = ("input", "epoch", "loader_start")
        if self.after is not None and not any(entry[1] == REGION and entry[2] in asked for entry in self.waiting):
            self.after = None

    def divide(self, boundary: int) -> tuple[TimeSums, Apart | None]:
        """End the step at ``boundary``; return its account and what was apart in it, and begin the next."""
        old, apart, after = self.account, self.apart, self.after
        entries, self.waiting = self.waiting, []
        self.account, self.apart, self.after, self.waits = TimeSums(), None, None, False
        late = None
        if after is not None and after.end > boundary:
            self.apart = Apart(max(after.begin, boundary), after.end)
            if after.begin < boundary:
                late, after.end = after, boundary
        else:
            late = after
        if late is None and self.apart is None:
            for entry in entries:
                (old if entry[0] < boundary else self.account).add(entry)
        else:
            self._settle([entry for entry in entries if entry[0] < boundary], old, late)
            self._settle([entry for entry in entries if entry[0] >= boundary], self.account, self.apart)
        return old, late if apart is None else apart.joined(late)

    @staticmethod
    def _settle(entries: list[tuple[Any, ...]], account: TimeSums, apart: Apart | None) -> None:
        for entry in entries:
            inside = apart is not None and apart.begin <= entry[0] < apart.end
            (apart.account if inside and apart is not None else account).add(entry)
