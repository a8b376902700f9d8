"""The allocation of a Slurm job that a run is in: when it ends, what still fits, and how the run goes on after it.

Slurm ends a job at its time limit whatever runs. A run that knows the end begins no launch that would not fit, is
interrupted a little before the end where a launch takes longer than expected, and has its job queued again.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType

from steptime.errors import FolderInUse, Unfinished
from steptime.interruption import receive
from steptime.results.progress import run_progress
from steptime.results.store import Store
from steptime.units import format_seconds

RESERVE_S = 20.0
"""So long before the end of the job the last launch must be over: to end its processes and to queue the job again."""
_SIGNAL_S = 2.0
"""So long after a failed launch a signal to this process may still come, of a Slurm that ends steps and job alike."""
_ANSWER_S = 20.0
_LOCK_S = 600.0
"""So long a job that was queued again waits for the lock of its own earlier start: a file server may keep the lock of a
node that died for some minutes."""
_LOCK_TURN_S = 2.0
_REQUEUES = "requeues"
_LEFT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
"""Days, hours, minutes and seconds of ``squeue -o %L``."""


@dataclass
class Allocation:
    """One job, as the process sees it that runs in it."""

    job: str
    most_requeues: int | None = None
    """How often a run queues its job again; None if the user did not ask for it."""
    clock: Callable[[], float] = time.monotonic
    was_requeued: bool = False
    """Whether this is not the job's first start."""
    _ends: float | None = field(default=None, init=False)
    """When the job ends, on ``clock``; None if unknown."""

    @classmethod
    def found(
        cls, most_requeues: int | None = None, environment: Mapping[str, str] = os.environ
    ) -> "Allocation | None":
        """Return the allocation around this process; None if there is none."""
        job = environment.get("SLURM_JOB_ID")
        if not job:
            return None
        allocation = cls(job, most_requeues, was_requeued=environment.get("SLURM_RESTART_COUNT", "0") != "0")
        allocation.ask()
        return allocation

    def ask(self) -> None:
        """Ask Slurm how much time is left, which an administrator may change; what is known stays where it is silent.

        This takes tenths of a second, and sites ask for few such questions: once a run, and after a signal.
        """
        left = _left_s(_answer(["squeue", "-h", "-j", self.job, "-o", "%L"])[1])
        if left is not None:
            self._ends = self.clock() + left - RESERVE_S

    def left_s(self) -> float | None:
        """Return the seconds that launches have; None if its end is unknown."""
        return None if self._ends is None else self._ends - self.clock()

    def require(self, seconds: float, what: str) -> None:
        """Raise Unfinished where a launch that is expected to take so many seconds would end too late."""
        left = self.left_s()
        if left is not None and seconds > left:
            message = (
                f"out of time: {what} takes about {format_seconds(seconds)}, and Slurm job {self.job} has "
                f"{format_seconds(max(0.0, left))} left for launches"
            )
            raise Unfinished(message, for_time=True)

    def await_own_lock(self, store: Store, note: Callable[[str], None]) -> None:
        """Wait until a results folder is free whose lock an earlier start of this job still holds.

        Raises FolderInUse where it is not free in time, and at once where another job or process holds it.
        """
        deadline, noted = self.clock() + _LOCK_S, False
        while True:
            try:
                with store.lock():
                    return
            except FolderInUse as error:
                holder, left = run_progress(store.path), self.left_s()
                is_own = self.was_requeued and holder is not None and holder.job == self.job
                if not is_own or self.clock() > deadline or (left is not None and left < 0.0):
                    raise
                if not noted:
                    note(f"waiting, at most {format_seconds(_LOCK_S)}, since the start before this one has it: {error}")
                    noted = True
            time.sleep(_LOCK_TURN_S)

    def await_signal(self) -> None:
        """Give a signal time to come: Slurm sends it to the job's steps and to this process, in any order."""
        time.sleep(_SIGNAL_S)

    @contextmanager
    def interrupted_at_end(self) -> Iterator[None]:
        """Interrupt the block where the job is about to end; the job's early signal, SIGUSR1, asks Slurm anew.

        Interrupted has the number of SIGALRM then. Only the main thread may enter the block.
        """

        def arm() -> None:
            left = self.left_s()
            signal.setitimer(signal.ITIMER_REAL, 0.0 if left is None else max(left, 1e-3))

        def ring(_number: int, frame: FrameType | None) -> None:
            self.ask()
            left = self.left_s()
            if left is not None and left <= 0.0:
                receive(signal.SIGALRM, frame)
            else:
                arm()

        # Both ask anew: the limit may have changed, and after a requeue Slurm may send the early signal at once.
        handlers = {signal.SIGALRM: ring, signal.SIGUSR1: ring}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            arm()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def requeue(self, store: Store) -> "Requeue":
        """Queue the job again, where the user asked for that.

        How often that was done is kept in the results folder, so that a study which does not get on ends some day.
        """
        if self.most_requeues is None:
            return Requeue(f"Slurm job {self.job} is not queued again without --requeue")
        kept = store.get(_REQUEUES) or {}
        count = kept.get("count", 0) + 1 if kept.get("job") == self.job else 1
        if count > self.most_requeues:
            most = f"Slurm job {self.job} was queued again {count - 1} times, the most that --requeue allows"
            return Requeue(most)
        store.put(_REQUEUES, {"job": self.job, "count": count})
        done, said = _answer(["scontrol", "requeue", self.job])
        if not done:
            store.put(_REQUEUES, {"job": self.job, "count": count - 1})
            return Requeue(f"Slurm does not queue job {self.job} again: {said or 'scontrol cannot be run'}")
        how_often = f"{count} of at most {self.most_requeues}"
        return Requeue(f"Slurm job {self.job} is queued again and continues there ({how_often})", queued=True)


@dataclass(frozen=True)
class Requeue:
    """Whether a job was queued again, and that or the cause in a sentence."""

    sentence: str
    queued: bool = False


def until_end(allocation: Allocation | None) -> AbstractContextManager[None]:
    """Return the block that the end of an allocation interrupts; one that nothing interrupts without any."""
    return allocation.interrupted_at_end() if allocation else nullcontext()


def _answer(command: list[str]) -> tuple[bool, str]:
    """Return whether a program of Slurm ended well, and what it said."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return done.returncode == 0, " ".join((done.stderr if done.returncode else done.stdout).split())


def _left_s(text: str) -> float | None:
    """Return the seconds that ``squeue -o %L`` prints; None for ``UNLIMITED``, ``INVALID`` and the like."""
    match = _LEFT.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
