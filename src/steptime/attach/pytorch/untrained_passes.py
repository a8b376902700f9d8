"""Passes that nothing is trained by: whose graph was dropped, and which ended in an exception."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..record_file import now

if TYPE_CHECKING:
    from ..recorder import Recorder

# In place of what a forward returns.
FAILED = object()
# Arrays of a result that are looked at for a graph, and forward passes without a backward pass that are known.
LOOKED_AT, MOST = 8, 4096
# In the dictionary that a node of autograd's graph keeps for notes.
NOTE = "steptime"


class Token:
    """What a graph holds, so that it shows when the graph is gone."""

    __slots__ = ("__weakref__",)


class DroppedPasses:
    """Finds an evaluation with gradients that reads no loader: a physical residual, a penalty on inputs.

    Its graphs are gone when the next forward begins, and the step has more forwards before its first backward pass than
    is usual. Those of an episode, over which one loss is, are kept until then.

    Behind requests to a loader it finds forwards that the script has left out (`continue`): their graphs are gone when
    a backward pass of a later batch begins.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.usual: int | None = None
        self.passes: list[tuple[int, weakref.ref[Token] | None]] = []  # when each began, and its graph
        self.held: dict[int, list[weakref.ref[Token] | None]] = {}  # graphs of forwards of each group of batches

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
        token = _token(result, LOOKED_AT)
        if self.recorder.sources.latest is None:
            self.passes.append((begun, token))
        else:
            self.held.setdefault(self.recorder.batches.group, []).append(token)
            if len(self.held) > MOST:
                self.held.clear()

    def backward_begin(self) -> None:
        """Learn what is usual from the forwards before the first backward pass of a step, and which were left out."""
        batches = self.recorder.batches
        if batches.group > batches.trained + 1 and self.held and not self.recorder.stack:
            for group in batches.groups()[:-1]:
                known = self.held.get(group, [])  # none, of one of which only times were noted
                if all(map(self._is_gone, known)) or (None in known and self.recorder.untrained.evaluates):
                    self.recorder.passes.leave_out(self.recorder, group, len(known) or 1)
        self.held.clear()
        if self.passes:
            count, self.passes = len(self.passes), []
            self.usual = count if self.usual is None else min(self.usual, count)

    @staticmethod
    def _is_gone(token: weakref.ref[Token] | None) -> bool:
        return token is not None and token() is None


def _token(result: Any, most: int) -> weakref.ref[Token] | None:
    """Leave a token in the graphs of ``result``, which any of them keeps; None without one that holds it."""
    token = None
    for each in _inside(result)[:most]:
        node = getattr(each, "grad_fn", None)
        notes = getattr(node, "metadata", None)
        if isinstance(notes, dict):
            token = notes[NOTE] = token or Token()
    return None if token is None else weakref.ref(token)


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
