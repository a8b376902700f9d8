"""Floating-point operations of a step that is made of calls, which JAX and TensorFlow show of a function's program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Callable

from .. import process

if TYPE_CHECKING:
    from ..recorder import Recorder

# The step whose calls are counted: the first one compiles.
COUNTED_STEP = 1
NOT_COUNTED = "its floating-point operations were not counted: {reason}"
_NO_CALL = "step {step} had no call of a compiled function with a gradient"
_TOO_FEW = "it has fewer than {steps} steps"
_LONGEST = 300


class CallFlops:
    """Adds up what the calls of one step compute, whichever libraries they are of, where that is wanted."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.wanted = bool(os.environ.get("STEPTIME_ATTACH_FLOPS"))
        self.calls = self.operations = 0
        self.how = self.reason = ""
        if self.wanted:
            recorder.at_step.append(self.step_closed)
            recorder.at_end.append(self.end)

    def count_program(self, how: str, count: Callable[[], int]) -> int | str:
        """Return the operations of a program by ``count``, or why they are not known: by its ValueError, or another.

        ``how`` is the note about how they are counted.
        """
        if not self.wanted:
            return 0
        self.how = how
        try:
            return count()
        except ValueError as error:
            return str(error)[:_LONGEST]
        except Exception as error:  # of another version of the library
            return repr(error)[:_LONGEST]

    def add(self, counted: int | str) -> None:
        """Add a call of a program with so many operations, or of one of which they are not known for a reason."""
        if not self.wanted or self.recorder.number != COUNTED_STEP:
            return
        self.calls += 1
        if isinstance(counted, str):
            self.reason = self.reason or counted
        else:
            self.operations += counted

    def step_closed(self, number: int) -> None:
        """Write the line once the step is over."""
        if self.wanted and number > COUNTED_STEP:
            self._write(self.reason if self.calls else _NO_CALL.format(step=COUNTED_STEP))

    def end(self) -> None:
        """Write why there is none."""
        if self.wanted:
            self._write(_TOO_FEW.format(steps=COUNTED_STEP + 1))

    def _write(self, reason: str) -> None:
        self.wanted = False
        line = {"kind": "flops", "step": COUNTED_STEP}
        if not reason:
            self.recorder.file.write({**line, "forward": self.operations})
            process.note(self.how)
        elif self.calls or "torch" not in sys.modules:  # which counts by itself
            self.recorder.file.write({**line, "reason": reason})
            process.note(NOT_COUNTED.format(reason=reason))


_made: list[CallFlops] = []


def call_flops() -> CallFlops:
    """Return the one of this process."""
    if not _made:
        _made.append(CallFlops(process.recorder()))
    return _made[0]
