"""torch: backward passes whose gradients no update uses: a script clears them before it, or asks for others alone."""

from __future__ import annotations

import math
import weakref
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .. import patches
from ..batch_amount import on_host
from ..step_passes import version_of

if TYPE_CHECKING:
    from ..recorder import Recorder

# Gradients that are compared with what they were, values of each, and how near one is to another that is the same.
COMPARED, VALUES, NEAR = 4, 64, 1e-3


class DroppedGradients:
    """Looks at what the optimizers train: whether a backward pass has left gradients there, and who cleared them.

    A library that keeps gradients elsewhere leaves none, and nothing is known of its passes. A script that adds them up
    elsewhere and clears them drops none: the update finds gradients that no backward pass has left.
    """

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.optimizers: list[weakref.ref[Any]] = []  # quicker to go through than a set of them
        self.left = False  # whether the latest pass has left gradients
        self.left_in: weakref.ref[Any] | None = None  # one of the arrays where
        # That gradient, where passes before it were dropped: where it lies, how often it was written to, and values.
        self.gradient: tuple[Any, int | None, int | None, list[float]] = (_none, None, None, [])
        self.beside = False  # whether the pass that goes on is for other arrays alone
        self.trains = False  # whether one followed a forward in training mode
        # Passes before the update that goes on, where it may use the gradients of several calls of its closure.
        self.before: int | None = None
        self.usual: Any = None  # steps of which only times are noted

    def patch(self, optimizer: Any, compiling: Callable[[], bool]) -> None:
        """Look behind `zero_grad` of optimizers and modules."""
        for owner in (optimizer.Optimizer, self.torch.nn.Module):
            patches.measure(owner, "zero_grad", self._clear, self._cleared, compiling)

    def made(self, optimizer: Any) -> None:
        """Know an ``optimizer`` that is being made."""
        alive = [each for each in self.optimizers if (known := each()) is not None and known is not optimizer]
        self.optimizers = [*alive, weakref.ref(optimizer)]

    def update_begins(self, *, again: bool) -> None:
        """Note an outermost update, which may call its closure ``again``: of torch's optimizers, L-BFGS alone does."""
        self.before = self.recorder.micro_steps if again else None
        self.take_back()

    def take_back(self) -> None:
        """Count what was dropped before an update that uses other gradients than the latest pass has left."""
        recorder = self.recorder
        if recorder.passes.put_aside:
            own = self._gradients()
            reference, address, _, _ = self.gradient
            kept = self.left and own and reference() is own[0] and address == _address(own[0])
            if own and (not kept or self._is_rewritten(own)):
                recorder.passes.take_back(recorder)

    def _gradients(self) -> list[Any]:
        """Return the first gradients that there are."""
        return list(islice((each.grad for each in self._parameters() if each.grad is not None), COMPARED))

    def _is_rewritten(self, gradients: list[Any]) -> bool:
        """Return whether ``gradients`` were given other values since the latest pass, and not clipped or scaled.

        On a device, where no values are read, clipping may hide it.
        """
        _, _, version, before = self.gradient
        values = _values(gradients)
        if before and len(values) == len(before):
            return not _is_clipped(before, values)
        return version_of(gradients[0]) != version and "clip" not in self.recorder.ledger.account.regions

    def backward_begins(self, kwargs: Any, *, evaluates: bool) -> None:
        """Learn what became of the gradients before a pass, and whether it is for what is trained."""
        self._look(begins=True)
        inputs = kwargs.get("inputs")
        self.beside = (evaluates and self.trains and self.recorder.stepped) or not self._trains_any(inputs)
        self.trains = self.trains or not evaluates

    def backward_ends(self) -> None:
        """Look whether the pass has left gradients; one for other arrays alone is dropped at once."""
        if self.beside:
            recorder = self.recorder
            if recorder.passes.settled == recorder.micro_steps - 1:
                recorder.passes.drop(recorder)
        else:
            self.left = self.is_left() or self._finds_left()
            if self.left and self.recorder.passes.put_aside:
                own = self._gradients()
                self.gradient = weakref.ref(own[0]), _address(own[0]), version_of(own[0]), _values(own)

    def is_left(self) -> bool:
        """Return whether the array that had a gradient behind the pass before has one."""
        array = self.left_in() if self.left_in is not None else None
        return array is not None and array.grad is not None

    def _finds_left(self) -> bool:
        array = next((each for each in self._parameters() if each.grad is not None), None)
        self.left_in = None if array is None else weakref.ref(array)
        return array is not None

    def _trains_any(self, inputs: Any) -> bool:
        """Return whether a pass for ``inputs``, all leaves if None, may give gradients to what is trained."""
        if not self.optimizers:
            return True
        if isinstance(inputs, self.torch.Tensor):
            inputs = (inputs,)
        if inputs is not None and not isinstance(inputs, (list, tuple)):
            return True
        asked = None if inputs is None else {id(each) for each in inputs}
        return any(each.requires_grad and (asked is None or id(each) in asked) for each in self._parameters())

    def _parameters(self) -> Iterator[Any]:
        for known in self.optimizers:
            optimizer = known()
            if optimizer is not None:
                yield from group_parameters(optimizer)

    def _look(self, cleared: Any = (), *, begins: bool = False) -> None:
        """Drop the passes since the latest update if none of their gradients is left but those ``cleared`` to zero."""
        recorder = self.recorder
        if not self.left or recorder.micro_steps <= recorder.passes.settled:
            return
        if (
            self.before is not None
            and recorder.inside("update")
            and not (begins and recorder.micro_steps == self.before)
        ):
            return
        if all(each.grad is None or id(each) in cleared for each in self._parameters()):
            recorder.passes.drop(recorder)
            self.left = False

    def _clear(self, args: Any, kwargs: Any) -> Any:
        """Return what is cleared where that may drop gradients; None elsewhere, as before every usual pass."""
        usual, recorder = self.usual, self.recorder
        if usual is not None and not usual.owes[len(usual.times)]:
            return None
        if not self.left or recorder.micro_steps <= recorder.passes.settled or not recorder.is_mine():
            return None
        return patches.CallMark(args[0], kwargs.get("set_to_none", args[1] if len(args) > 1 else None))

    def _cleared(self, mark: Any, returned: bool) -> None:
        owner, to_none = mark.given
        if not returned:
            return
        cleared: Any = ()
        if to_none is False or not _clears_to_none(self.torch):
            own = owner.parameters() if isinstance(owner, self.torch.nn.Module) else group_parameters(owner)
            cleared = {id(each) for each in own}
        self._look(cleared)


def _none() -> None:
    """Return nothing, as a reference to what is gone does."""


def _address(gradient: Any) -> int | None:
    """Return where the numbers of a ``gradient`` lie, None of one that has no one place (sparse, or of a subclass)."""
    try:
        address: int = gradient.data_ptr()
    except RuntimeError:
        return None
    return address


def _values(gradients: list[Any]) -> list[float]:
    """Return the first values of ``gradients``, without an operation of torch; none of those on a device."""
    values: list[float] = []
    for each in gradients:
        try:
            array = on_host(each)
        except (RuntimeError, TypeError):  # NumPy has no such type, or none that is sparse
            return []
        if array is None:
            return []
        values += array.flat[:VALUES].tolist()
    return values


def _is_clipped(before: list[float], values: list[float]) -> bool:
    """Return whether ``values`` are those ``before``, all times one number or cut at one size."""
    largest, limit = max(map(abs, before)), max(map(abs, values))
    scale = limit / largest if largest else 1.0
    cut = [value if abs(value) < limit else math.copysign(limit, value) for value in before]
    scaled = [scale * value for value in before]
    return any(
        all(abs(value - other) <= NEAR * limit for value, other in zip(values, expected)) for expected in (scaled, cut)
    )


def group_parameters(optimizer: Any) -> Iterator[Any]:
    """Yield what an optimizer trains."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


def _clears_to_none(torch: Any) -> bool:
    """Return whether gradients are cleared to None by default: since torch 2.0."""
    return int(torch.__version__.partition(".")[0]) >= 2  # noqa: PLR2004
