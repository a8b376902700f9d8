"""The memory of the ranks of an attached script: how much, whether it grows steadily, and what is left."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from steptime.attached.attempts import Attempt
from steptime.attached.form import AttachedFinding, RankMemory
from steptime.attached.step_parts import KeptSteps
from steptime.results.attached_lines import MemoryLine
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.statistics.slope import growth
from steptime.units import format_bytes, format_count, format_seconds

_FEWEST, _SHORTEST_S = 12, 10.0
"""Looks, and the time that they span, which a growth needs."""
_LEAST_BYTES, _LEAST_SHARE = 16 << 20, 0.01
"""That memory must have grown, to be called growing."""
_QUARTERS = 4
_EACH = 0.1
"""Share of the whole growth that each quarter must have of the one before: what settles does not grow on."""
_FEWEST_FAULTS = 100
_PER_H = 3600.0
_MOST_LISTED = 8


def memory_of_ranks(kept: KeptSteps) -> list[RankMemory]:
    """Return the memory of each rank, in their order."""
    first = kept.numbers[0] if kept.numbers else 0
    return [_rank_memory(rank, process.memory, first) for rank, process in kept.attempt.processes.items()]


def _rank_memory(rank: int, lines: Sequence[MemoryLine], first: int) -> RankMemory:
    steady = [line for line in lines if line.step >= first and line.resident is not None]
    slope, grows = _growth(steady)
    devices = [device for line in lines for device in line.devices.values()]
    faults = [line.faults for line in steady if line.faults is not None]
    return RankMemory(
        rank=rank,
        resident_peak=_most(line.peak or line.resident for line in lines),
        growth_per_h=slope,
        grows=grows,
        available=min((line.available for line in lines if line.available is not None), default=None),
        swapped=_most(line.swapped for line in lines),
        faults=faults[-1] - faults[0] if len(faults) > 1 else None,
        device_allocated=_most(allocated for allocated, _, _ in devices),
        device_reserved=_most(reserved for _, reserved, _ in devices),
        device_whole=_most(whole for _, _, whole in devices),
    )


def memory_now(attempt: Attempt) -> str | None:
    """Return what each rank has at its latest look, on its device too; of many the range. None without a look."""
    latest = {rank: process.memory[-1] for rank, process in attempt.processes.items() if process.memory}
    host = {rank: line.resident for rank, line in latest.items() if line.resident is not None}
    device = {rank: sum(held for _, held, _ in line.devices.values()) for rank, line in latest.items() if line.devices}
    places = ((host, ""), (device, "reserved on devices: "))
    return "; ".join(f"{title}{_listed(held)}" for held, title in places if held) or None


def _listed(held: Mapping[int, int]) -> str:
    """Return the bytes of each of few ranks, else of the least and the most."""
    few = (
        sorted(held)
        if len(held) <= _MOST_LISTED
        else [min(held, key=held.__getitem__), max(held, key=held.__getitem__)]
    )
    between = ", " if len(held) <= _MOST_LISTED else " to "
    return between.join(f"rank {rank} {format_bytes(held[rank])}" for rank in few)


def _most(values: Iterator[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _growth(lines: Sequence[MemoryLine]) -> tuple[Interval[float | None], bool]:
    """Return bytes an hour, and whether memory grows all the time rather than settling or jumping."""
    at = np.array([line.at_ns for line in lines], dtype=np.float64) * 1e-9
    if len(at) < _FEWEST or at[-1] - at[0] < _SHORTEST_S or not (np.diff(at) > 0.0).all():
        return NOT_MEASURED, False
    held = np.array([line.resident for line in lines], dtype=np.float64)
    slope = growth(at, held)
    quarters = np.array([float(np.median(part)) for part in np.array_split(held, _QUARTERS)])
    rise = float(quarters[-1] - quarters[0])
    enough = rise >= max(_LEAST_BYTES, _LEAST_SHARE * float(quarters[0]))
    steadily = bool((np.diff(quarters) >= _EACH * rise).all())
    low, high = (slope.low or 0.0) * _PER_H, (slope.high or 0.0) * _PER_H
    return Interval(slope.value * _PER_H, low, high), enough and steadily and low > 0.0


def memory_findings(ranks: Sequence[RankMemory], steps: int, seconds: float) -> Iterator[AttachedFinding]:
    """Yield whose memory grows steadily, and who waits for pages in most steps.

    Args:
        ranks: their memory.
        steps: of one rank.
        seconds: that these took.
    """
    growing = [rank for rank in ranks if rank.grows]
    if growing:
        yield AttachedFinding(kind="memory_growth", sentence=_growing(growing, len(ranks), seconds), lost_s=None)
    waiting = [rank for rank in ranks if (rank.faults or 0) >= max(steps, _FEWEST_FAULTS)]
    if waiting:
        most = max(waiting, key=lambda rank: rank.faults or 0)
        swapped = f"; {format_bytes(most.swapped)} of it are swapped out" if most.swapped else ""
        whose = f"rank {most.rank}" if len(ranks) > 1 else "the process"
        sentence = (
            f"{whose} waited for {most.faults:,} pages from disk in {format_count(steps, 'step')} (major page faults: "
            f"files that are mapped, or swap){swapped}"
        )
        yield AttachedFinding(kind="page_faults", sentence=sentence, lost_s=None)


def _growing(growing: Sequence[RankMemory], ranks: int, seconds: float) -> str:
    most = max(growing, key=lambda rank: rank.growth_per_h.value or 0.0)
    slope = most.growth_per_h
    size, low, high = (format_bytes(value or 0.0) for value in (slope.value, slope.low, slope.high))
    left = ""
    if most.available is not None and slope.value:
        lasting = format_seconds(_PER_H * most.available / sum(rank.growth_per_h.value or 0.0 for rank in growing))
        left = f"; {format_bytes(most.available)} are left, at that rate for {lasting}"
    whose = f"memory of rank {most.rank}" if ranks > 1 else "memory of the process"
    others = f" (and of {format_count(len(growing) - 1, 'more rank')})" if len(growing) > 1 else ""
    return f"the {whose}{others} grew steadily in {format_seconds(seconds)}, by {size} an hour ({low} to {high}){left}"
