"""The progress of a run on standard error: three lines that are redrawn on a terminal, a line now and then elsewhere.

The three are the stage with its current item, a bar, and the time left with the ranking so far.
"""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from steptime.cli.console import print_paragraph
from steptime.interruption import Interrupted, shielded
from steptime.units import format_seconds, time_left

if TYPE_CHECKING:
    from steptime.execution.progress import Remaining

_BAR = 30
"""Most columns of the bar; it gets fewer where the terminal is narrow."""
_OTHER_COLUMNS = 34
"""Columns of the spinner, the count and the time elapsed."""


_RANKING_SHARE = 0.02
"""Of the time of a run that may go into rankings: none is made while the last ones took more."""
_LINE_EVERY_S = 10.0
"""Shortest time between two lines of progress in a file; failures and notes are written at once."""
_TICK_S = 1.0
"""How often a line that had to wait is looked for."""


class LiveObserver:
    """Shows on standard error what the runner is doing and how much is still to come; threads may share it.

    A stage or a failure that is over leaves a line behind, also on a terminal. The number of items and the time left
    are those that the runner reports, as a range where it cannot know them; in a stage of which it reports none, each
    item to come is expected to take as long as those that are over, without those whose results were kept before, as
    soon as half of the items are over.
    """

    def __init__(self, console: Console, ranking: Callable[[], Sequence[str]] = tuple) -> None:
        """Show progress on ``console``, and below it the lines of ``ranking`` after each block of launches."""
        self._console = console
        self._ranking = ranking
        self._ranked: Sequence[str] = ()
        self._ranking_s = 0.0
        self._created = time.monotonic()
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=max(6, min(_BAR, console.width - _OTHER_COLUMNS))),
            TextColumn("{task.fields[count]}", markup=False, style="progress.download", table_column=_whole()),
            TimeElapsedColumn(table_column=_whole()),
            console=console,
        )
        self._lock = threading.Lock()
        self._task: TaskID | None = None
        self._title = ""
        self._least: int | None = None
        """Items of the stage in any case, those that are over included; None if that is not known."""
        self._most: int | None = None
        self._item = ""
        self._left = ""
        self._reported = False
        """Whether the runner has reported for this stage what is still to come."""
        self._waiting: list[str] = []
        """Lines of a file that follow once the last one is old enough: the item, or the ranking before it."""
        self._last_line = 0.0
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write_waiting, daemon=True)
        self._done = self._failed = self._kept = 0
        self._before = 0
        """Items of the stage that were over when it went on."""
        self._began = time.monotonic()
        # Last: it asks for a first picture at once.
        self._live = Live(
            get_renderable=self._picture, console=console, transient=True, refresh_per_second=8, auto_refresh=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            try:
                with shielded():
                    self._live.start()
            except Interrupted:  # which has hidden the cursor
                self._live.stop()
                raise
        else:
            self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shielded():
            self._over.set()
            with self._lock:
                self._end_stage()
            if self._console.is_terminal:
                self._live.stop()

    def stage(self, title: str, total: int | None, done: int = 0) -> None:
        with self._lock:
            self._end_stage()
            self._title, self._item, self._left = title, "", ""
            self._least = self._most = total
            self._done = self._before = done
            self._failed = self._kept = 0
            self._reported = False
            self._began = time.monotonic()
            self._task = self._bar.add_task(title, total=total, count="")
            self._update_bar()
            self._waiting = []
            if not self._console.is_terminal:
                over = f"{done} of {total} done" if done else total
                self._say(title + (f" ({over})" if total is not None else ""))
                self._last_line = time.monotonic()

    def working_on(self, what: str) -> None:
        with self._lock:
            self._item = what
            worked = self._done - self._kept - self._before
            if not self._reported and self._least is not None and worked and 2 * self._done >= self._least:
                share = (time.monotonic() - self._began) / worked
                self._left = time_left((self._least - self._done) * share)
            if not self._console.is_terminal:
                number = f"{self._count(self._done + 1)}:" if self._least is not None else ""
                left = f"({self._left})" if self._left else ""
                line = f"  {time.strftime('%H:%M:%S')} {' '.join(filter(None, [number, what, left]))}"
                ranked = [each for each in self._waiting if each.startswith(_SO_FAR)]
                self._waiting = [*ranked, line]
                self._write_if_due()

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None:
        with self._lock:
            self._done += 1
            self._failed += not ok
            self._kept += kept
            self._update_bar()
            if not ok:
                self._say(f"  failed: {what}", "red")

    def remaining(self, remaining: "Remaining") -> None:
        with self._lock:
            self._reported = True
            self._least, self._most = self._done + remaining.least, self._done + remaining.most
            self._left = time_left(remaining.least_s, remaining.most_s)
            self._update_bar()

    def block_over(self) -> None:
        began = time.monotonic()
        if self._ranking_s > _RANKING_SHARE * (began - self._created):
            return
        ranked = self._ranking()
        self._ranking_s += time.monotonic() - began
        with self._lock:
            if ranked and ranked != self._ranked and not self._console.is_terminal:
                items = [each for each in self._waiting if not each.startswith(_SO_FAR)]
                self._waiting = [f"{_SO_FAR}{' '.join(ranked)}", *items]
                self._write_if_due()
            self._ranked = ranked

    def note(self, text: str) -> None:
        with self._lock:
            self._say(f"  {text}")

    def _picture(self) -> Group:
        if self._task is None:
            return Group()
        doing = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        if self._item:
            doing.append(f": {self._item}", "not bold")
        ranked = [f"so far {' '.join(self._ranked)}"] if self._ranked else []
        known = "; ".join([*([self._left] if self._left else []), *ranked])
        last = [Text(f"  {known}", no_wrap=True, overflow="ellipsis")] if known else []
        return Group(doing, self._bar, *last)

    def _write_if_due(self) -> None:
        if self._waiting and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._say(self._waiting.pop(0))
            self._last_line = time.monotonic()

    def _write_waiting(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                self._write_if_due()

    def _count(self, number: int) -> str:
        """Return ``18 of 36 to 60``, and ``37 of at most 60`` when more are made than are needed."""
        least, most = self._least or 0, max(self._most or 0, number)
        if number <= least < most:
            return f"{number} of {least} to {most}"
        return f"{number} of {most}" if most in {number, least} else f"{number} of at most {most}"

    def _update_bar(self) -> None:
        if self._task is None:
            return
        if self._least is None or self._most is None:
            self._bar.update(self._task, completed=self._done, total=None, count=f"{self._done}")
            return
        # The bar is full when as many items are over as are likely: the middle of the range.
        likely = max(self._done, (self._least + self._most) / 2)
        self._bar.update(self._task, completed=self._done, total=likely, count=self._count(self._done))

    def _end_stage(self) -> None:
        if self._task is None:
            return
        self._bar.remove_task(self._task)
        self._task = None
        self._waiting = []
        done = self._done - self._before
        counts = [f"{done} done"] if done else []  # some stages have no items
        counts += [f"{self._failed} failed"] if self._failed else []
        took = format_seconds(time.monotonic() - self._began)
        self._say(f"{self._title}: {', '.join([*counts, took])}", "bold")

    def _say(self, line: str, style: str = "") -> None:
        print_paragraph(self._console, line, style)


_SO_FAR = "  so far: "


def _whole() -> Column:
    return Column(no_wrap=True)
