"""Passes that nothing is trained by: whose graph was dropped, and which ended in an exception."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from .. import patches
from ..record_file import now
from ..step_passes import StepPasses

if TYPE_CHECKING:
    from ..recorder import Recorder

# In place of what a forward returns.
FAILED = object()
# Arrays of a result that are looked at for a graph, and forward passes without a backward pass that are known.
LOOKED_AT, MOST = 8, 4096
# Calls of a script by which the place of a forward is known, and the largest graph that is looked through.
DEEP, LARGEST = 16, 20_000
# Passes without gradient whose place is looked at before one is of an array that the script trains on next.
FIRST_LOOKS = 64
PACKAGE = patches.__name__.rpartition(".")[0] + "."
# In the dictionary that a node of autograd's graph keeps for notes.
NOTE = "steptime"


class Token:
    """What a graph holds, so that it shows when the graph is gone."""

    __slots__ = ("__weakref__",)


class BegunPass:
    """A forward of a script without a loader: when it began, where the script asked for it, and its graph."""

    __slots__ = ("begun", "place", "token")

    def __init__(self, begun: int, place: Any) -> None:
        self.begun, self.place = begun, place
        self.token: weakref.ref[Token] | None = None

    def is_gone(self) -> bool:
        """Return whether its graph was dropped."""
        return _is_gone(self.token)


class DroppedPasses:
    """Finds an evaluation with gradients that reads no loader: a physical residual, a penalty on inputs.

    Its graphs are gone when the next forward begins, or are none of those that a backward pass is for, and the step has
    more forwards before its first backward pass than is usual. Those of an episode, over which one loss is, are kept
    until then. What goes forward in the place from which the script trains was left out by it instead.

    Behind requests to a loader it finds forwards that the script has left out (`continue`): their graphs are gone when
    a backward pass of a later batch begins, or kept with their losses and none of its own.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.usual: int | None = None
        self.passes: list[BegunPass] = []
        self.places: set[Any] = set()  # of passes that were trained on
        self.held: dict[int, list[weakref.ref[Token] | None]] = {}  # graphs of forwards of each group of batches
        # An array that went forward without gradient, when, and in which place.
        self.ahead: tuple[weakref.ref[Any], int, Any] | None = None
        self.looks = FIRST_LOOKS
        self.ahead_places: set[Any] = set()  # where the script looks at batches, before it trains on some of them
        self.looked_since = 0  # when it began to, since it trained or evaluated

    def read(self, array: Any) -> None:
        """Note that ``array`` goes forward without gradient; the script may train on it next, as by its weights."""
        known = self.ahead is not None and self.ahead[0]() is array
        if self.recorder.sources.latest is None and hasattr(array, "is_leaf") and not known:
            at, place = now(), None
            if self.looks:
                place = _place(None)
                self.looks -= not self.ahead_places
                self.looked_since = (self.looked_since or at) if place in self.ahead_places else 0
            self.ahead = weakref.ref(array), at, place

    def _look_ahead(self, at: int, place: Any) -> None:
        """Count passes since ``at`` in a ``place`` as the step's own, with those of batches that were left out."""
        self.recorder.ledger.own_from(self.looked_since or at)
        if place is not None and len(self.ahead_places) < MOST:
            self.ahead_places.add(place)

    def begin(self, array: Any) -> BegunPass:
        """Set apart what the step has so far if it was an evaluation, as a forward of ``array`` begins; return it."""
        recorder, at = self.recorder, now()
        if recorder.stack or recorder.sources.latest is not None:
            self.passes = []
            known = self.held.get(recorder.batches.group, [])
            recorder.untrained.kept = bool(known) and not any(map(_is_gone, known))
            return BegunPass(at, None)
        if self.ahead is not None and self.ahead[0]() is array and (recorder.stepped or recorder.begin is None):
            self._look_ahead(*self.ahead[1:])
        self.looked_since = 0
        own = BegunPass(at, _place(array))
        if recorder.number == 0 and recorder.begin is not None and self._tried_out():
            recorder.begin, recorder.forwards, recorder.passes = None, 0, StepPasses()
            recorder.micro_steps, recorder.backwards = 0, []
        if not recorder._awaits_backward():
            self.passes = []
            return own
        dropped = 0
        while dropped < len(self.passes) and self.passes[dropped].is_gone():
            dropped += 1
        while dropped and self.passes[dropped - 1].place in self.places:
            dropped -= 1
        dropped = min(dropped, len(self.passes) + 1 - (self.usual or 1)) if self.usual is not None else 0
        if dropped > 0:
            self._set_apart(dropped, at)
        recorder.ledger.waits = True  # whose they are is known later
        return own

    def _tried_out(self) -> bool:
        """Return whether all passes were before the first batch of a loader, and their graphs or gradients are gone.

        So are those by which a script learns shapes or warms up: the first step has not begun.
        """
        recorder = self.recorder
        asked = any(request.delivered for request in recorder.pending)
        dropped = recorder.passes.settled == recorder.micro_steps and not (recorder.stepped or recorder.calls)
        return asked and dropped and all(begun.is_gone() for begun in self.passes)

    def _set_apart(self, count: int, at: int) -> None:
        """Set apart the first passes, behind which something goes on ``at`` a time."""
        recorder = self.recorder
        del self.passes[:count]
        recorder.ledger.set_apart(recorder.begin or 0, self.passes[0].begun if self.passes else at)
        recorder.forwards -= count
        recorder.passes.inputs.forget(recorder.micro_steps, range(count))

    def end(self, begun: BegunPass, result: Any) -> None:
        """Note a forward with its ``result``."""
        begun.token = _token(result, LOOKED_AT)
        if self.recorder.sources.latest is None:
            self.passes.append(begun)
        else:
            self.held.setdefault(self.recorder.batches.group, []).append(begun.token)
            if len(self.held) > MOST:
                self.held.clear()

    def backward_begin(self, tensors: Any) -> None:
        """Learn what is usual from the forwards before a first backward pass, of ``tensors``, and which it leaves out.

        Those of which the step has more than is usual are an evaluation's or left out. If all graphs are gone, where
        updates are by hand, no module has made the forward of this pass.
        """
        recorder = self.recorder
        self._forget_if_gone()
        batches = recorder.batches
        if batches.group > batches.trained + 1 and self.held and not recorder.stack:
            *before, last = batches.groups()
            trained = _Reach(tensors, self.held.get(last, []))
            for group in before:
                known = self.held.get(group, [])  # none, of one of which only times were noted
                if all(map(_is_gone, known)) or (recorder.untrained.evaluates and trained.leaves(known)):
                    recorder.passes.leave_out(recorder, group, len(known) or 1)
        self.held.clear()
        if self.passes:
            if self.usual is not None and len(self.passes) > self.usual and not recorder.stack:
                self._leave_out(tensors)
            self.usual = len(self.passes) if self.usual is None else min(self.usual, len(self.passes))
            if len(self.places) < MOST:
                self.places.update(each.place for each in self.passes)
            self.passes = []

    def _forget_if_gone(self) -> None:
        """Count all passes as left out if, where updates are by hand, none of their graphs is left."""
        recorder = self.recorder
        if recorder.by_hand and self.passes and not recorder.stack and all(each.is_gone() for each in self.passes):
            self._forget(range(len(self.passes)))

    def _leave_out(self, tensors: Any) -> None:
        """Set apart those first passes that are none of a backward pass's, and count no others that are left out."""
        passes = self.passes
        trained = _Reach(tensors, [passes[-1].token])
        evaluated = 0
        while evaluated < len(passes) - 1 and passes[evaluated].place not in self.places:
            begun = passes[evaluated]
            if begun.token is None or not (begun.is_gone() or trained.lacks([begun.token])):
                break
            evaluated += 1
        if evaluated:
            self._set_apart(evaluated, passes[evaluated].begun)
        place = passes[-1].place  # by which one is known whose loss the script keeps
        gone = [
            index
            for index, begun in enumerate(passes[:-1])
            if begun.is_gone() or (begun.token and begun.place == place and trained.leaves([begun.token]))
        ]
        if gone:
            self._forget(gone)

    def _forget(self, gone: Any) -> None:
        """Count the passes at places ``gone`` as left out."""
        recorder = self.recorder
        recorder.passes.inputs.forget(recorder.micro_steps, gone)
        recorder.forwards -= len(gone)
        recorder.passes.left_out += len(gone)
        self.passes = [begun for index, begun in enumerate(self.passes) if index not in gone]


class _Reach:
    """What a backward pass of ``tensors`` reaches, of the ``latest`` forwards and others, known by their tokens."""

    def __init__(self, tensors: Any, latest: list[weakref.ref[Token] | None]) -> None:
        self.tensors, self.latest = tensors, latest
        self.reached: set[Token] | None = None

    def leaves(self, tokens: list[weakref.ref[Token] | None]) -> bool:
        """Return whether it leaves ``tokens`` out: one is not known, or the latest is reached and none of these."""
        return None in tokens or (self.lacks(tokens) and not self.lacks(self.latest))

    def lacks(self, tokens: list[weakref.ref[Token] | None]) -> bool:
        """Return whether it is known to reach others and none of ``tokens``."""
        if self.reached is None:
            self.reached = _tokens_of(self.tensors)
        reached = self.reached
        return bool(reached) and not any(token is not None and token() in reached for token in tokens)


def _is_gone(token: weakref.ref[Token] | None) -> bool:
    return token is not None and token() is None


def _place(array: Any) -> tuple[Any, ...]:
    """Return from where a script asks for a forward of ``array``, whose rows are a part of it: not of our own code."""
    shape = getattr(array, "shape", None)
    frame: Any = sys._getframe(1)
    calls: list[Any] = [shape[0] if shape else None]
    while frame is not None and len(calls) <= DEEP:
        if not str(frame.f_globals.get("__name__")).startswith(PACKAGE):
            calls.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def _tokens_of(tensors: Any) -> set[Token]:
    """Return the tokens in the graphs of ``tensors``; an empty set if the graphs are too large to search."""
    given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    nodes: list[Any] = [getattr(each, "grad_fn", None) for each in given]
    seen: set[Any] = {None}
    tokens: set[Token] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) > LARGEST:
            return set()
        notes = getattr(node, "metadata", None) or {}
        tokens.update([notes[NOTE]] if NOTE in notes else [])
        nodes += [one for one, _ in node.next_functions]
    return tokens


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
