"""Showing a run while it runs: a bar with what is being done on a terminal, one line per event elsewhere."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from steptime.units import format_seconds

_BAR = 30
"""Most columns of the bar; it gets fewer where the terminal is narrow."""
_ROOM = 50
"""Columns of what stands beside the bar."""


class LiveObserver:
    """Tells the user, on standard error, what the runner is doing and how long it may take; threads may share it.

    What is over leaves a line behind, also on a terminal. The time left is what the runner says, or else, in a stage of
    which it says nothing, as much for each item to come as for those that are over.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, style="bold"),
            BarColumn(bar_width=max(6, min(_BAR, console.width - _ROOM))),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._lock = threading.Lock()
        self._task: TaskID | None = None
        self._title = ""
        self._total: int | None = None
        self._what = ""
        self._left = ""
        self._told = False
        """Whether the runner has said of this stage how long it will take."""
        self._done = self._failed = 0
        self._began = time.monotonic()
        # Last: it asks for a first picture at once.
        self._live = Live(
            get_renderable=self._picture, console=console, transient=True, refresh_per_second=8, auto_refresh=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._end_stage()
        if self._console.is_terminal:
            self._live.stop()

    def stage(self, title: str, total: int | None) -> None:
        with self._lock:
            self._end_stage()
            self._title, self._total, self._what, self._left = title, total, "", ""
            self._done = self._failed = 0
            self._told = False
            self._began = time.monotonic()
            self._task = self._bar.add_task(title, total=total)
            if not self._console.is_terminal:
                self._say(title + (f" ({total})" if total is not None else ""))

    def working_on(self, what: str) -> None:
        with self._lock:
            self._what = what
            if not self._told and self._total is not None and self._done:
                share = (time.monotonic() - self._began) / self._done
                self._left = _about((self._total - self._done) * share)
            if not self._console.is_terminal:
                self._say(f"  {time.strftime('%H:%M:%S')} {' '.join(filter(None, [self._share(), what, self._left]))}")

    def finished(self, what: str, *, ok: bool = True) -> None:
        with self._lock:
            self._done += 1
            self._failed += not ok
            if self._task is not None:
                # Repeating a trial beyond its minimum is not foreseen; the bar then grows instead of overflowing.
                total = None if self._total is None else max(self._total, self._done)
                self._bar.update(self._task, completed=self._done, total=total)
            if not ok:
                self._say(f"  failed: {what}", "red")

    def time_left(self, seconds: float) -> None:
        with self._lock:
            self._told = True
            self._left = _about(seconds)

    def note(self, text: str) -> None:
        with self._lock:
            self._say(f"  {text}")

    def _picture(self) -> Group:
        lines = [Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in (self._what, self._left) if line]
        return Group(self._bar, *lines) if self._task is not None else Group()

    def _share(self) -> str:
        return "" if self._total is None else f"{self._done + 1}/{max(self._total, self._done + 1)}"

    def _end_stage(self) -> None:
        if self._task is None:
            return
        self._bar.remove_task(self._task)
        self._task = None
        failed = f", {self._failed} failed" if self._failed else ""
        took = format_seconds(time.monotonic() - self._began)
        self._say(f"{self._title}: {self._done} done{failed}, {took}", "bold")

    def _say(self, line: str, style: str = "") -> None:
        # Lines of a file stay whole, for whoever searches them.
        whole = not self._console.is_terminal
        self._console.print(Text(line, style=style), soft_wrap=whole)


def stderr_console() -> Console:
    """The console for everything that is not a result."""
    return Console(file=sys.stderr)


def _about(seconds: float) -> str:
    return f"(about {format_seconds(max(0.0, seconds))} left)"
