"""How many threads each process of a script keeps busy while it trains, on cores of its own.

They are its processor seconds over those in which its first thread did not queue for a core: what others keep it from
is not what it asks for. Looks between steps have the processor time of a process and of its children so far, those of
loaders included. Where the steps between two looks fill the time between them, the difference is what training took;
elsewhere evaluations and checkpoints lie in between, and it does not count. Records of before these looks have the
threads that compute and the processor time of the whole process, start-up included: it keeps at most as many threads
busy as either.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from steptime.results.attached_files import ProcessLines

_FILLED = 0.9
"""Of the time between two looks, that steps must fill."""
_LEAST_RUNNING = 0.05
"""Of the time, that a process counts as running at least: more of a queue is not told from rounding."""


def busy_threads(processes: Iterable[ProcessLines]) -> float | None:
    """Return the mean over processes that trained of the threads that each keeps busy; None if one does not show it."""
    by_process = [_look_by_look(each) or _whole_life(each) for each in processes]
    known = [threads for threads in by_process if threads is not None]
    return sum(known) / len(known) if known and len(known) == len(by_process) else None


def delayed_share(processes: Iterable[ProcessLines]) -> float | None:
    """Return the share of its time for which the most delayed process could not run although it was ready to.

    None if that of one is unknown.
    """
    ends = [(each.process.begin_ns, each.end) for each in processes]
    known = [(end.delayed_ns, end.at_ns - begin) for begin, end in ends if end and end.delayed_ns is not None]
    shares = [min(1.0, held / max(1, lasted)) for held, lasted in known]
    return max(shares, default=None) if len(known) == len(ends) else None


def _look_by_look(process: ProcessLines) -> float | None:
    spans = list(_trained(process))
    lasted = sum(lasts_ns for lasts_ns, _, _ in spans)
    return _threads(sum(taken_ns for _, taken_ns, _ in spans), lasted, sum(held_ns for *_, held_ns in spans))


def _trained(process: ProcessLines) -> Iterator[tuple[int, int, int]]:
    """Yield how long two looks lie apart between which a process did nothing but train, what it took, and queued."""
    looks = [look for look in process.memory if look.processor_ns is not None]
    for before, after in pairwise(looks):
        span_ns = after.at_ns - before.at_ns
        steps_s = sum(step.active_s for step in process.steps if before.step <= step.number < after.step)
        if span_ns > 0 and steps_s * 1e9 >= _FILLED * span_ns:
            taken_ns = (after.processor_ns or 0) - (before.processor_ns or 0)
            yield span_ns, taken_ns, (after.delayed_ns or 0) - (before.delayed_ns or 0)


def _whole_life(process: ProcessLines) -> float | None:
    computing = process.weights[-1].threads if process.weights else 0
    if process.end is None or not process.end.processor_ns or not computing:
        return None
    lived_ns = process.end.at_ns - process.process.begin_ns
    busy = _threads(process.end.processor_ns, lived_ns, process.end.delayed_ns or 0)
    return None if busy is None else min(float(computing), busy)


def _threads(taken_ns: int, lasted_ns: int, held_ns: int) -> float | None:
    """Return processor time over the time in which a process did not queue; None if no time passed."""
    return taken_ns / max(lasted_ns - held_ns, _LEAST_RUNNING * lasted_ns) if lasted_ns > 0 else None
