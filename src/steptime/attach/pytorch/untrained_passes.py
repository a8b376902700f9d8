"""Passes that nothing is trained by: whose graph was dropped, and which ended in an exception."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..record_file import now

if TYPE_CHECKING:
    from ..recorder import Recorder

# In place of what a forward returns.
FAILED = object()
# Arrays of a result that are looked at for a graph.
LOOKED_AT = 8
# In the dictionary that a node of autograd's graph keeps for notes.
NOTE = "steptime"


class Token:
    """What a graph holds, so that it shows when the graph is gone."""

    __slots__ = ("__weakref__",)


class DroppedPasses:
    """Finds an evaluation with gradients that reads no loader: a physical residual, a penalty on inputs.

    Its graphs are gone when the next forward begins, and the step has more forwards before its first backward pass than
    is usual. Those of an episode, over which one loss is, are kept until then.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.usual: int | None = None
        self.passes: list[tuple[int, weakref.ref[Token] | None]] = []  # when each began, and its graph

    def begin(self) -> int:
        """Set apart what the step has so far if it was an evaluation, as a forward begins; return when."""
        recorder, at = self.recorder, now()
        if recorder.stack or recorder.sources.latest is not None or not recorder._awaits_backward():
            self.passes = []
            return at
        dropped = 0
        while dropped < len(self.passes) and self._is_gone(self.passes[dropped][1]):
            dropped += 1
        dropped = min(dropped, len(self.passes) + 1 - (self.usual or 1)) if self.usual is not None else 0
        if dropped > 0:
            del self.passes[:dropped]
            recorder.ledger.set_apart(recorder.begin or 0, self.passes[0][0] if self.passes else at)
            recorder.forwards -= dropped
            recorder.passes.inputs.forget(recorder.micro_steps, dropped)
        recorder.ledger.waits = True  # whose they are is known later
        return at

    def end(self, begun: int, result: Any) -> None:
        """Note a forward with its ``result``."""
        if self.recorder.sources.latest is None:
            self.passes.append((begun, _token(result, LOOKED_AT)))

    def backward_begin(self) -> None:
        """Learn what is usual from the forwards before the first backward pass of a step."""
        if self.passes:
            count, self.passes = len(self.passes), []
            self.usual = count if self.usual is None else min(self.usual, count)

    @staticmethod
    def _is_gone(token: weakref.ref[Token] | None) -> bool:
        return token is not None and token() is None


def _token(result: Any, most: int) -> weakref.ref[Token] | None:
    """Leave a token in the graph of ``result``; None without one that holds it."""
    for each in _inside(result)[:most]:
        node = getattr(each, "grad_fn", None)
        notes = getattr(node, "metadata", None)
        if isinstance(notes, dict):
            token = notes[NOTE] = Token()
            return weakref.ref(token)
    return None


def _inside(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return list(dict.values(result))
    return list(result) if isinstance(result, (list, tuple)) else [result]


def failed(recorder: Recorder, *, backward: bool) -> None:
    """Take back the pass that has just ended in an exception: its batch counts only where it is tried again."""
    if backward and recorder.micro_steps:
        recorder.micro_steps -= 1
        del recorder.backwards[-1:]
        recorder.passes.inputs.drop(recorder.micro_steps, recorder.micro_steps + 1)
    recorder.forwards = max(0, recorder.forwards - 1)
    recorder.batches.fail()
