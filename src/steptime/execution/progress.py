"""How the runner reports its progress, to whoever shows it."""

import contextlib
import os
import socket
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from steptime.errors import StoreError
from steptime.plain_file import write_whole
from steptime.process_identity import ProcessIdentity
from steptime.results.progress import BEAT_S, PROGRESS, RunProgress


@dataclass(frozen=True)
class Remaining:
    """What is still to come of a stage: a range, because a trial is launched until its interval is narrow enough."""

    least: int
    """Launches that are needed in any case."""
    most: int
    """Launches that the study allows at most."""
    least_s: float | None
    """The seconds of those that are needed; None before launches have shown how long one takes."""
    most_s: float | None
    """The seconds after which the budget or the study ends them; None without a budget, where that is unknown."""


class Observer(Protocol):
    """Receives what happens, as it happens; the command line shows it, tests collect it."""

    def stage(self, title: str, total: int | None, done: int = 0) -> None:
        """A stage begins, or goes on with ``done`` of its items over; ``total`` is their number, None if not known."""

    def working_on(self, what: str) -> None:
        """The current item."""

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None:
        """One item of the stage is over; ``kept``: its result was there already, so that it took no time."""

    def remaining(self, remaining: Remaining) -> None:
        """What is still to come of the stage, the current item included; replaces ``total``."""

    def block_over(self) -> None:
        """Every trial that was to be launched in a block has been, so that results can be compared."""

    def note(self, text: str) -> None:
        """Something the user should read."""


class Silent:
    """An observer that ignores everything."""

    def stage(self, title: str, total: int | None, done: int = 0) -> None: ...

    def working_on(self, what: str) -> None: ...

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None: ...

    def remaining(self, remaining: Remaining) -> None: ...

    def block_over(self) -> None: ...

    def note(self, text: str) -> None: ...


class KeptProgress:
    """Passes progress on to an observer, and keeps it in the results folder for ``steptime status`` on any host.

    It is written when a stage or an item begins and at the end of the run. Between these its time of change is renewed,
    so that another host can tell a long item from a dead run. A folder that cannot be written is for the records to
    complain about.
    """

    def __init__(self, observer: Observer, folder: Path, allocation: str | None, beat_s: float = BEAT_S) -> None:
        """Pass on to ``observer`` and write into ``folder``; ``allocation`` names the job that the run is in."""
        self._beat_s = beat_s
        self._observer = observer
        self._path = folder / PROGRESS
        self._writing = threading.Lock()
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._now = RunProgress(
            process=str(ProcessIdentity.own()), pid=os.getpid(), host=socket.gethostname(), job=allocation
        )

    def begin(self) -> None:
        """Say that the run has begun, and give heartbeats until it ends; the folder's lock is held until then."""
        self._write(stage="Starting")
        self._beating.start()

    def stage(self, title: str, total: int | None, done: int = 0) -> None:
        self._write(stage=title, item="", done=done, least=total, most=total, least_s=None, most_s=None)
        self._observer.stage(title, total, done)

    def working_on(self, what: str) -> None:
        self._write(item=what)
        self._observer.working_on(what)

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None:
        with self._writing:
            self._now = replace(self._now, done=self._now.done + 1)
        self._observer.finished(what, ok=ok, kept=kept)

    def remaining(self, remaining: Remaining) -> None:
        with self._writing:
            least, most = self._now.done + remaining.least, self._now.done + remaining.most
            self._now = replace(self._now, least=least, most=most, least_s=remaining.least_s, most_s=remaining.most_s)
        self._observer.remaining(remaining)

    def block_over(self) -> None:
        self._observer.block_over()

    def note(self, text: str) -> None:
        self._observer.note(text)

    def end(self, how: str) -> None:
        """Keep how the run ended."""
        self._over.set()
        self._write(ended=how, item="")

    def _beat(self) -> None:
        """Renew the time of change of the file, which costs a file server less than a file that is written anew."""
        while not self._over.wait(self._beat_s):
            with self._writing, contextlib.suppress(OSError):
                if not self._over.is_set():
                    os.utime(self._path, follow_symlinks=False)

    def _write(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of the progress
        with self._writing:
            self._now = replace(self._now, at=datetime.now(UTC).isoformat(timespec="seconds"), **changes)
            with contextlib.suppress(StoreError, OSError):
                write_whole(self._path, self._now.to_json())


class SampleProgress:
    """Reports to an observer how many of a dataset's samples are written, as a stage of hundredths of all of them.

    The stage begins with the first report, so that what fails before it shows none.
    """

    _PARTS = 100

    def __init__(self, observer: Observer, title: str) -> None:
        """Report to ``observer``, under ``title``."""
        self._observer = observer
        self._title = title
        self._reported: int | None = None
        """Parts of the stage; None before it."""

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` samples are written."""
        if self._reported is None:
            self._observer.stage(self._title, self._PARTS)
            self._reported = 0
        while self._reported < self._PARTS * done // total:
            self._reported += 1
            self._observer.finished(f"{done} of {total}")
