"""The early end of a run, between two steps: all ranks wait at the same one, and none of them has saved anything.

A sweep writes a file beside this package with the number of the step; without it nothing here is called. A rank that
comes to the step leaves a file with what the sweep must know, and waits for the answer. On ``end`` it ends its record,
removes the file, and once all have done so sends itself SIGTERM, the signal that Slurm would send: what the script does
then is its own. On any other answer, and after ``LONGEST_NS`` without one, it trains on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from . import process
from .record_file import now, read_text

if TYPE_CHECKING:
    from .recorder import Recorder

ORDER = "early-end.txt"
WAITING = "waiting-"
END, GO_ON = "end", "go on"
LONGEST_NS = 30_000_000_000
EVERY_NS = 500_000_000
OTHERS_NS = 5_000_000_000
_PAUSE_S = 0.05


class RankEnd:
    """The end of this process's training before a step that a sweep names in ``folder``."""

    def __init__(self, recorder: Recorder, folder: str) -> None:
        self.recorder = recorder
        self.folder = folder
        self.looked = 0
        self.step: int | None = None
        self.is_asked = False
        self.path = ""

    def step_begins(self, number: int) -> None:
        """Look what the order is, at most twice a second, and wait before its step."""
        if self.is_asked:
            return
        begin = now()
        if begin - self.looked >= EVERY_NS:
            self.looked = begin
            text = self._order()
            self.step = int(text) if text.isdecimal() else None
        if self.step is None or number < self.step:
            return
        self.is_asked = True
        is_over = self._wait(number)
        self.recorder.ledger.extend_apart(begin, now())
        if is_over:
            process.end_block()
            self._wait_for_others()
            os.kill(os.getpid(), signal.SIGTERM)

    def _order(self) -> str:
        return read_text(os.path.join(self.folder, ORDER)).strip()

    def _wait(self, number: int) -> bool:
        """Say that this rank waits; return whether its training is to end."""
        rank, world, _ = self.recorder.world or (0, 1, "")
        line = {
            "step": number,
            "rank": rank,
            "world": world,
            "saves": self.recorder.saves,
            "handles_signal": signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL,
        }
        place = f"{WAITING}{socket.gethostname()}-{os.getpid()}"
        self.path = os.path.join(self.folder, place + ".json")
        part = os.path.join(self.folder, place + ".part")
        with open(part, "w") as file:
            json.dump(line, file)
        os.rename(part, self.path)
        until = now() + LONGEST_NS
        while now() < until:
            text = self._order()
            if text in (END, GO_ON):
                return text == END
            time.sleep(_PAUSE_S)
        os.remove(self.path)
        return False

    def _wait_for_others(self) -> None:
        """Wait until all ranks have ended their records: the first that dies may take the others with it."""
        os.remove(self.path)
        until = now() + OTHERS_NS
        while now() < until and any(name.startswith(WAITING) for name in os.listdir(self.folder)):
            time.sleep(_PAUSE_S)


def watch(recorder: Recorder) -> None:
    """Let a sweep end this process early, if it asks for that."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(folder, ORDER)):
        recorder.each_step = True
        recorder.at_step.append(RankEnd(recorder, folder).step_begins)
