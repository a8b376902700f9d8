"""torch: the arrays that go forward in scripts that make their batches by hand, and what their dimensions count.

A shape alone shows neither: rows may be samples, or the moments of a sequence. What comes back decides: a result for
each row, or for each integer of a text that the module embeds.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from ..batch_amount import ARRAYS, CHANNELS, COMPARED, FORMS, IDENTIFIERS, INTEGERS
from ..patches import raised_by_signal_handler
from ..step_form import FORWARD
from ..step_inputs import InputAmount, PassInput
from ..step_passes import reference_to, version_of

if TYPE_CHECKING:
    from ..batch_amount import BatchReader
    from ..recorder import Recorder
    from .weights import Weights

# Dimensions of a batch of texts, and of one of pictures.
TEXTS, PICTURES = 2, 4
ORDER = "which dimension of what goes forward counts samples is not known"
SINGLE = "what goes forward may be a single sample"
ROWS = "no result shows which dimension of what goes forward counts samples"
CATEGORIES = "integers with one result a row may be categories"
NO_TEXT = "no integers with a result for each go forward"
IN_PIECES = "what goes forward is an array in pieces on several ranks"


class ForwardInputs:
    """Notes what goes forward with gradient while no loader is known."""

    def __init__(self, torch: Any, recorder: Recorder, reader: BatchReader, weights: Weights) -> None:
        self.recorder, self.reader, self.weights = recorder, reader, weights
        functional = getattr(torch._C, "_functorch", None)
        self.is_wrapped: Callable[[Any], bool] = getattr(functional, "is_functorch_wrapped_tensor", lambda _: False)
        self.modules: weakref.WeakKeyDictionary[Any, ModuleInputs] = weakref.WeakKeyDictionary()
        self.latest: Callable[[], Any] = lambda: None  # the module that was looked at last, and what is known of it
        self.known: Any = None

    def given(self, name: str, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
        """Return what ``note`` needs of a pass that begins in region ``name``, or None if it is not counted."""
        return (module, args, kwargs) if name == FORWARD and self.recorder.sources.latest is None else None

    def note(self, given: tuple[Any, Any, Any], result: Any) -> None:
        """Note a pass that has ended with ``result``."""
        taken = None
        try:
            taken = self._input(*given, result)
        except Exception as error:  # an array of another kind, whose shape or type cannot be asked
            if raised_by_signal_handler(error):
                raise
        recorder = self.recorder
        recorder.passes.inputs.note(recorder.micro_steps, taken)

    def _input(self, module: Any, args: Any, kwargs: Any, result: Any) -> PassInput | None:
        named = kwargs if not args else args[0] if isinstance(args[0], dict) else {}
        array: Any = dict.get(named, IDENTIFIERS)
        is_text = array is not None
        if array is None:
            array = next(iter(dict.values(named)), None) if named else args[0]
        shape = getattr(array, "shape", None)
        # Computed by a module that came before, or without the dimension over which a function is mapped.
        if not shape or getattr(array, "grad_fn", None) is not None or self.is_wrapped(array):
            return None
        known = self.known if self.latest() is module else self._look_at(module)
        back = _shape_of_result(result)
        form = (array.__class__, array.dtype, shape, back, len(args), len(kwargs), is_text)
        amount = known.amounts.get(form)
        if amount is None:
            others = [each for each in (*args[1:], *dict.values(named or kwargs)) if each is not array]
            attends = known.recurs or self.weights.attention
            amount = known.amount(array, back, others, is_text=is_text, attends=attends)
            if len(known.amounts) < FORMS:
                known.amounts[form] = amount
        recorder = self.recorder
        content = self._checksum(array) if recorder.number < COMPARED else None
        version = version_of(array) if array.__class__.__module__ == "torch" else None
        return PassInput(reference_to(array), version, id(module), amount, content, bool(recorder.stack))

    def _checksum(self, array: Any) -> int | None:
        try:
            return self.reader.checksum(array)
        except (RuntimeError, TypeError):  # NumPy has no such type, or may not have it with a gradient
            return None

    def _look_at(self, module: Any) -> ModuleInputs:
        known = self.modules.get(module)
        if known is None:
            known = self.modules[module] = ModuleInputs(module)
        self.latest, self.known = weakref.ref(module), known
        return known


class ModuleInputs:
    """What a module is made of, which bears on the dimensions that it takes, and the amounts of known forms."""

    def __init__(self, module: Any) -> None:
        inside = list(module.modules())
        kinds = {base.__name__ for each in inside for base in type(each).__mro__}
        self.embeds = any("Embedding" in name for name in kinds)
        self.recurs = "RNNBase" in kinds
        # Of recurrent and attending modules of torch, which by default take the moments of a sequence first.
        self.sequence_first = any(vars(each).get("batch_first") is False for each in inside)
        self.amounts: dict[Any, InputAmount] = {}

    def amount(
        self, array: Any, back: tuple[int, ...] | None, others: list[Any], *, is_text: bool, attends: bool
    ) -> InputAmount:
        """Return what ``array`` holds.

        Args:
            array: that went forward.
            back: the shape of the first array that came back.
            others: further arguments.
            is_text: whether its name is that of texts, whose first dimension counts samples.
            attends: whether the module is one that reads sequences.
        """
        if array.__class__.__module__.startswith("torch.distributed"):
            return _unknown(IN_PIECES)
        shape = tuple(map(int, array.shape))
        beside = [(tuple(each.shape), _is_integer(each)) for each in others[:ARRAYS] if getattr(each, "shape", None)]
        if _is_integer(array) and len(shape) == TEXTS:
            labelled = (shape, True) in beside
            return self._integer_amount(shape, back, is_text=is_text, labelled=labelled, attends=attends)
        rows = shape[0]
        if len(shape) == 1 or (len(shape) == PICTURES - 1 and rows in CHANNELS):
            return _unknown(SINGLE)
        if self.sequence_first and len(shape) < PICTURES:
            return _unknown(ORDER)
        shown = any(each[0] == rows for each in (back or (), *(one for one, _ in beside)) if each)
        if shown or (back is None and len(shape) == PICTURES and rows not in CHANNELS):
            return InputAmount(rows, None, "", NO_TEXT)
        return _unknown(ROWS)

    def _integer_amount(
        self, shape: tuple[int, ...], back: tuple[int, ...] | None, *, is_text: bool, labelled: bool, attends: bool
    ) -> InputAmount:
        size = shape[0] * shape[1]
        if is_text:
            return InputAmount(shape[0], size)
        # Where only a loss comes back, labels of the same form show a text, of a module that reads sequences.
        for_each = back is not None and (_has_result_for_each(shape, back) or (labelled and back == shape))
        if self.embeds and (for_each or (labelled and back is None and attends)):
            return InputAmount(None, size, ORDER, "")
        if back is not None and len(back) <= TEXTS and back[0] in shape and back[0] != size:
            return InputAmount(back[0], None, "", CATEGORIES)
        return _unknown(ROWS)


def _has_result_for_each(shape: tuple[int, ...], back: tuple[int, ...]) -> bool:
    """Return whether results of shape ``back`` have one for each integer: with its classes behind or between."""
    if len(back) == TEXTS:
        return back[0] == shape[0] * shape[1] and 1 not in shape
    if len(back) != TEXTS + 1 or shape[1] == 1:
        return False
    return shape in (back[:2], back[1::-1], back[::2])


def _unknown(reason: str) -> InputAmount:
    return InputAmount(None, None, reason, reason)


def _is_integer(array: Any) -> bool:
    return str(getattr(array, "dtype", "")).rpartition(".")[2] in INTEGERS


def _shape_of_result(result: Any) -> tuple[int, ...] | None:
    """Return the shape of the first array of a forward's result that has dimensions, which a loss has not."""
    if isinstance(result, dict):
        result = dict.values(result)
    elif not isinstance(result, (list, tuple)):
        return getattr(result, "shape", None) or None
    for number, each in enumerate(result):
        shape = getattr(each, "shape", None)
        if shape:
            return shape  # type: ignore[no-any-return]
        if number == ARRAYS:
            break
    return None
