"""The message benchmark: every operation and size in rounds of random order, timed back to back and checked.

A visit is a few runs of one message, one directly behind the other, as steps follow each other in training: the time
of a run counts from the end of the run before it, so that a worker that starts late does not count. After each visit
every worker compares the values with the right ones: a wrong sum in any run of the visit shows in the last.

The latencies of a back end are counted in units of alpha, the one-way time of one byte over a plain socket between
the same processes on the same cores; the rendezvous measures it before the framework starts.
"""

import random
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from steptime.worker.framework import ADDED, FED, BackEnd, Framework, Message
from steptime.worker.handshake import Rendezvous
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.shared_file import RecordFile

if TYPE_CHECKING:
    from numpy import ndarray

    from steptime.worker.clock import StepClock


_WARM_RUNS = 3
_BYTES_PER_VALUE = 4
_MOST_DESCRIBED = 5
_TOLERANCE = 1e-5
"""Relative; the values are whole numbers, most of whose sums are exact."""


def run_message_timing(framework: Framework, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Be one worker of the benchmark: measure alpha, open the back end, time its messages, and write the record."""
    with Rendezvous(context) as rendezvous:
        # Before the framework starts: some keep threads that never sleep, which would disturb the pings.
        alphas = rendezvous.latencies()
        started = time.monotonic()
        back_end: BackEnd = framework.function("open_back_end")(job, context)
        try:
            records.write("session", facts=back_end.facts(), opened_in_s=time.monotonic() - started)
            found = _time_all(_MessageTimer(back_end, context, rendezvous), job, rendezvous)
        except BaseException:
            back_end.abort()
            raise
        records.write("net", alphas_s=alphas, **found)
        back_end.close()
    records.write("done")


def _time_all(timer: "_MessageTimer", job: Job, rendezvous: Rendezvous) -> Dict[str, Any]:
    """Time ``job["exchange"]`` by ``job["schedule"]``; return the ends of all runs and the checks' findings."""
    schedule = job["schedule"]
    pairs = [(name, size) for name in job["exchange"]["operations"] for size in job["exchange"]["sizes"]]
    costs = [timer.warm(operation, size) for operation, size in pairs]
    runs = rendezvous.from_first([_runs(cost, schedule) for cost in costs])
    visits = []
    shuffled = random.Random(job["seed"])  # noqa: S311 - reproducible, not secret
    for number in range(schedule["rounds"]):
        turn = list(range(len(pairs)))
        shuffled.shuffle(turn)
        for index in turn:
            operation, size = pairs[index]
            ends = timer.visit(operation, size, runs[index])
            visits.append({"operation": operation, "bytes": size, "round": number, "ends_s": ends})
    return {"visits": visits, "checks": timer.checks, "wrong": timer.wrong, "mistakes": timer.mistakes}


def _runs(cost_s: float, schedule: Dict[str, Any]) -> int:
    """Return the timed runs of one visit: slow messages get fewer."""
    wanted = schedule["seconds"] / (schedule["rounds"] * max(cost_s, 1e-7))
    return int(max(1, min(schedule["runs"], wanted)))


class _MessageTimer(object):
    """The messages of one worker, and what their checks found.

    ``checks``, ``wrong``
        How many visits were checked, and how many of them had a wrong value on this worker.
    ``mistakes``
        The first wrong values.
    """

    def __init__(self, back_end: BackEnd, context: ProcessContext, rendezvous: Rendezvous) -> None:
        self._back_end = back_end
        self._context = context
        self._rendezvous = rendezvous
        self._messages: Dict[Tuple[str, int], Message] = {}
        self._clocks: Dict[Tuple[str, int], "StepClock"] = {}
        self._visits = 0
        self.checks, self.wrong = 0, 0
        self.mistakes: List[str] = []

    def warm(self, operation: str, size: int) -> float:
        """Make the message, run it a few times, and return the seconds of the quickest run."""
        self._messages[operation, size] = message = self._back_end.message(operation, size // _BYTES_PER_VALUE)
        self._clocks[operation, size] = message.clock()
        ends = self.visit(operation, size, _WARM_RUNS)
        return min(later - earlier for earlier, later in zip(ends, ends[1:]))

    def visit(self, operation: str, size: int, runs: int) -> List[float]:
        """Start together, run once unseen and ``runs`` times timed, check; return the ends, the unseen one's first."""
        import numpy

        message, clock = self._messages[operation, size], self._clocks[operation, size]
        count = size // _BYTES_PER_VALUE
        self._visits += 1
        contributions = [
            contribution(numpy, count, rank, self._visits).astype(numpy.float32)
            for rank in range(self._context.workers)
        ]
        before = message.result() if message.becomes == ADDED else None
        before = None if before is None else before.copy()
        message.fill(contributions[self._context.rank])
        self._rendezvous.barrier()
        for _ in range(1 + runs):
            message.run()
            clock.tick()
        ends = clock.drain()
        if operation == "incast":
            expected = numpy.stack(contributions[1:]) if self._context.rank == 0 else None
        else:
            expected = _expected_sum(numpy, contributions, before, message.becomes, 1 + runs)
        self._check(numpy, "%s of %d bytes" % (operation, size), message.result(), expected)
        return ends

    def _check(self, numpy: Any, what: str, found: Any, expected: Optional["ndarray"]) -> None:
        if expected is None:
            return
        self.checks += 1
        found = numpy.asarray(found)
        if found.shape != expected.shape:
            self._describe("%s: %s values instead of %s" % (what, found.shape, expected.shape))
            return
        right = numpy.isclose(found, expected, rtol=_TOLERANCE, atol=0.0)
        if not right.all():
            first = tuple(int(index[0]) for index in numpy.nonzero(~right))
            self._describe(
                "%s: %d of %d values are wrong on worker %d, the first (at %s) is %r instead of %r"
                % (
                    what,
                    (~right).sum(),
                    right.size,
                    self._context.rank,
                    ", ".join(map(str, first)),
                    float(found[first]),
                    float(expected[first]),
                )
            )

    def _describe(self, sentence: str) -> None:
        self.wrong += 1
        if len(self.mistakes) < _MOST_DESCRIBED:
            self.mistakes.append(sentence)


def contribution(numpy: Any, count: int, rank: int, visit: int) -> "ndarray":
    """Return what a worker contributes in a visit: whole numbers from 1 on, different for every worker and index."""
    values: "ndarray" = (numpy.arange(count) * 7 + 5 * rank + 3 * visit) % (11 + 2 * rank) + 1 + rank
    return values


def _expected_sum(
    numpy: Any, contributions: List["ndarray"], before: Optional["ndarray"], becomes: str, runs: int
) -> "ndarray":
    total: "ndarray" = numpy.sum(contributions, axis=0, dtype=numpy.float64)
    if becomes == FED:
        total = total * float(len(contributions)) ** (runs - 1)
    elif becomes == ADDED:
        total = total * runs + before
    return total
