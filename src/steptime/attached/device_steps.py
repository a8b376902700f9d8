"""Steps by the clock of a device: from the last event of one step to the last of the next, and what lies between.

Where the host runs ahead, its own times are off by what has queued up, and show what it asks for, not what is done.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.attached.attempts import Attempt
from steptime.attached.form import AttachedFinding, DeviceTime
from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import DeviceLine, StepLine
from steptime.units import format_seconds

_PER_S = 1e-9
_FEWEST = 4
_SHARE = 0.5
"""Of the steps, that must be known on the device."""
_NOTABLE = 0.1
_INPUT = ("input", "epoch", "loader_start")
_FED = ("forward", "nograd", "replay")
"""Regions before which a batch is asked for."""
ASKED, COLLECTED = "input", "collection"
"""The keys of waiting for input and for garbage collection among the device's own times."""


def device_lines(attempt: Attempt, numbers: Sequence[int]) -> Mapping[int, DeviceLine]:
    """Return the steps of a process that trains alone by its device, of those with ``numbers``; none of too few."""
    if len(attempt.ranks) != 1 or attempt.world > 1:
        return {}
    (process,) = attempt.processes.values()
    lines = {line.step: line for line in process.devices if line.step_ns}
    known = {number: lines[number] for number in numbers if number in lines}
    parted = sum(bool(line.regions) for line in known.values())
    return known if parted >= _FEWEST and len(known) >= _SHARE * len(numbers) else {}


def drained_ns(process: ProcessLines) -> dict[int, int]:
    """Return of each step with an evaluation for how long that waits for training steps which the device still makes.

    A host of JAX runs ahead of its device, until somebody reads a result.
    """
    lines = {line.step: line for line in process.devices if line.end_ns}
    drained = {}
    for step in process.steps:
        if step.apart is None:
            continue
        # Without a loader it lies ahead of the call of its step.
        asked = [lines[at] for at in (step.number, step.number - 1) if at in lines]
        ends = [line.end_ns for line in asked if line.begin_ns < step.apart.end_ns]
        until = min(ends[0], step.apart.end_ns) if ends else 0
        if until > step.apart.begin_ns:
            drained[step.number] = until - step.apart.begin_ns
    return drained


def queued_s(process: ProcessLines) -> dict[int, float]:
    """Return what each step has of that time, in seconds: those since the evaluation before have queued it up.

    Behind the last step somebody reads the result, as the script's end does.
    """
    lines = {line.step: line for line in process.devices if line.end_ns}
    drained = drained_ns(process)
    last = process.steps[-1] if process.steps else None
    if last is not None and last.apart is None and last.number in lines and process.end is not None:
        until = min(lines[last.number].end_ns, process.end.at_ns)
        drained[last.number] = max(0, until - last.end_ns)
    behind: dict[int, float] = {}
    longer_ns = {step.number: _longer_ns(step, lines.get(step.number)) for step in process.steps}
    first = process.steps[0].number if process.steps else 0
    for step in process.steps:
        if step.apart is None and step is not last:
            continue
        line = lines.get(step.number)
        asked_later = step.apart is not None and line is not None and line.begin_ns >= step.apart.end_ns
        end = step.number + (not asked_later)
        if taken := drained.get(step.number, 0):
            longer = {number: longer_ns.get(number, 1) for number in range(first, end)}
            whole = sum(longer.values())
            behind |= {number: taken * own / whole * _PER_S for number, own in longer.items()}
        first = end
    return behind


def _longer_ns(step: StepLine, line: DeviceLine | None) -> int:
    """Return by how much a step is longer on the device than on the host; at least a nanosecond."""
    host_ns = step.duration_ns - (step.apart.end_ns - step.apart.begin_ns if step.apart is not None else 0)
    return 1 if line is None else max(1, line.end_ns - line.begin_ns - host_ns)


def device_idle_s(attempt: Attempt, numbers: Sequence[int], step_s: float) -> float | None:
    """Return how long of a step the device of JAX has nothing to compute; None if it is not known.

    Args:
        attempt: of one process.
        numbers: of the steps that are shown.
        step_s: their mean.
    """
    if len(attempt.ranks) != 1:
        return None
    wanted, (process,) = set(numbers), attempt.processes.values()
    busy = [sum(line.regions.values()) for line in process.devices if line.end_ns and line.step in wanted]
    known = len(busy) >= max(_FEWEST, _SHARE * len(numbers))
    return max(0.0, step_s - float(np.mean(busy)) * _PER_S) if known else None


def device_lengths(lines: Sequence[DeviceLine]) -> NDArray[np.float64]:
    """Return how long steps take on the device: one rank x steps, in seconds."""
    return np.array([[line.step_ns for line in lines]]) * _PER_S


def device_sums(lines: Sequence[DeviceLine], steps: Sequence[StepLine]) -> dict[str, NDArray[np.float64]]:
    """Return the times of regions and gaps on the device, one rank x steps, with those in which it waits for the host.

    For input it waits at most as long as the host asks the loader, and not longer than the gaps in which that happens;
    for collections of garbage as long as they last, and not longer than it had nothing to do. A step that is not timed
    in parts has the mean shares of those that are.
    """
    rows = [_with_waiting(line, step) if line.regions else {} for line, step in zip(lines, steps, strict=True)]
    names = dict.fromkeys(name for row in rows for name in row)
    whole = sum(line.step_ns for line in lines if line.regions)
    shares = {name: sum(row.get(name, 0) for row in rows) / whole for name in names}
    return {
        name: np.array(
            [[row.get(name, 0) if row else shares[name] * line.step_ns for row, line in zip(rows, lines, strict=True)]]
        )
        * _PER_S
        for name in names
    }


def _with_input(line: DeviceLine, step: StepLine) -> dict[str, int]:
    left = sum(step.regions.get(name, 0) for name in _INPUT)
    sums = {ASKED: left, **line.regions, **line.gaps}
    for name in line.gaps:
        if name.partition(">")[2] in _FED:
            taken = min(left, sums[name])
            sums[name] -= taken
            left -= taken
    sums[ASKED] -= left
    return sums


def _with_waiting(line: DeviceLine, step: StepLine) -> dict[str, int]:
    sums = _with_input(line, step)
    left = min(step.regions.get(COLLECTED, 0), max(0, line.waited_ns[0] - sums[ASKED]))
    places = sorted(sums.keys() - {ASKED}, key=lambda name: (name not in line.gaps, -sums[name], name))
    cost = 0
    for name in places:  # where in a step the host collected is not known: gaps on the device are likelier
        taken = min(left - cost, sums[name])
        sums[name] -= taken
        cost += taken
    return {**sums, COLLECTED: cost} if cost else sums


def devices_of_ranks(attempt: Attempt, numbers: Sequence[int]) -> Iterator[str]:
    """Yield why the steps of several ranks are not timed by their devices, with how long they are on these.

    Args:
        attempt: the ranks.
        numbers: of the steps that are shown.
    """
    wanted = set(numbers)
    lengths = {
        rank: [line.step_ns for line in process.devices if line.step_ns and line.step in wanted]
        for rank, process in attempt.processes.items()
    }
    known = {rank: float(np.mean(own)) * _PER_S for rank, own in lengths.items() if len(own) >= _FEWEST}
    if (len(attempt.ranks) > 1 or attempt.world > 1) and known:
        slow = max(known, key=lambda rank: known[rank])
        yield (
            "times are the hosts', since what ranks wait for each other is known on these clocks alone; by devices a "
            f"step takes {format_seconds(known[slow])} at most, on rank {slow}"
        )


def device_time(attempt: Attempt, lines: Sequence[DeviceLine], host_s: float) -> DeviceTime | None:
    """Return how busy the device was in these steps; None without any.

    Args:
        attempt: that they are of.
        lines: of the steps.
        host_s: mean step by the clock of the host.
    """
    parted = [line for line in lines if line.regions]
    whole = sum(line.step_ns for line in parted)
    if not whole:
        return None
    least, most = (sum(line.waited_ns[bound] for line in parted) / whole for bound in (0, 1))
    return DeviceTime(
        host_step_s=host_s,
        worked=max(0.0, 1.0 - most),
        waited=min(1.0, least),
        parted=len(parted),
        events_s=sum(line.cost_ns for line in parted) / len(parted) * _PER_S,
        event_s=max((line.event_ns for each in attempt.processes.values() for line in each.devices), default=0) * _PER_S
        or None,
    )


def busy_sentence(time: DeviceTime) -> str:
    """Return in one line how busy the device was."""
    if time.waited >= _NOTABLE:
        return f"the host is the limit: for {_percent(time.waited)} of a step the device had done all it was given"
    return f"the device worked at least {_percent(time.worked)} of the step"


def host_findings(time: DeviceTime | None, step_s: float, steps: int) -> Iterator[AttachedFinding]:
    """Yield that the host is the limit, where it is.

    Args:
        time: of the device.
        step_s: mean of a step.
        steps: of the whole job.
    """
    if time is not None and time.waited >= _NOTABLE:
        yield AttachedFinding(
            kind="host_limit",
            sentence=f"{busy_sentence(time)}, and worked at most on what it was given just then",
            lost_s=time.waited * step_s * steps,
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
