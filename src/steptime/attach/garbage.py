"""Collections of Python's garbage, which take time from whatever region they happen in."""

from __future__ import annotations

import atexit
import gc
import threading
from typing import TYPE_CHECKING, Any

from .account import REGION
from .record_file import now

if TYPE_CHECKING:
    from .account import Ledger

NAME = "collection"
# Shorter ones are not told apart from the code around them.
LEAST_NS = 100_000
# Of a region that never ends, that are kept at most.
KEPT = 256


class Collections:
    """The collections of the recorded thread that no region or gap has been shortened by yet, and those of the step."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []  # begin and duration
        self.count = self.longest = 0

    def add(self, begin: int, duration: int) -> None:
        """Add a collection that has just ended."""
        if len(self.waiting) < KEPT:
            self.waiting.append((begin, duration))
        self.count += 1
        self.longest = max(self.longest, duration)

    def take(self, since: int, ledger: Ledger, *, last: bool) -> int:
        """Note how long those since a time took together, return it, and forget them; all where it is the ``last``."""
        if not self.waiting:
            return 0
        taken = sum(duration for begin, duration in self.waiting if begin >= since)
        self.waiting = [] if last else [(begin, duration) for begin, duration in self.waiting if begin < since]
        if taken:
            ledger.add((since, REGION, NAME, taken))
        return taken

    def end_step(self) -> list[int]:
        """Return how many the step had and how long its longest took; nothing without any."""
        count, longest = self.count, self.longest
        self.count = self.longest = 0
        return [count, longest] if count else []


def watch(recorder: Any) -> None:
    """Have the interpreter report its collections; it drops what a callback raises, so that ours is short."""
    begun = [0]

    def collected(phase: str, info: Any) -> None:  # noqa: ARG001 - the interpreter's form
        if phase == "start":
            begun[0] = now()
            return
        duration = now() - begun[0]
        if duration >= LEAST_NS and begun[0] and threading.get_ident() == recorder.thread:
            recorder.collections.add(begun[0], duration)

    def forget() -> None:  # before the interpreter takes down what the callback needs
        if collected in gc.callbacks:
            gc.callbacks.remove(collected)

    gc.callbacks.append(collected)
    atexit.register(forget)
