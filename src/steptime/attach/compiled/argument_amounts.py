"""Samples and tokens of a compiled step whose script has no loader, by the arrays that go into its call.

A shape alone does not show which dimension counts samples. It is known where arrays beside the state share their first
dimension and no other, as inputs and labels do; else the reason is on record.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Sequence

from ..batch_amount import CHANNELS, FORMS, INTEGERS, BatchAmount
from ..step_inputs import InputAmount

EMPTY = "no array beside the state goes into a call of the step"
LIKE_STATE = "an array that goes into a call of the step may be of its state or of its batch"
UNLIKE = "the arrays that go into a call of the step beside its state do not share a first dimension"
ALONE = "one array goes into a call of the step beside its state, and no other shows which dimension counts samples"
ORDER = "the arrays that go into a call of the step share several dimensions, and any may count samples"
REPEATED = "a call of the step computes gradients several times"
IN_PIECES = "an array that goes into a call of the step lies on several processes"
NO_TEXT = "no pair of arrays of integers of one form goes into a call of the step"
# Dimensions of texts, and of pictures with that of their channels.
TEXTS, PICTURES = 2, 4
# Of keys of random numbers in the form of JAX's older versions.
KEYS = ((2,), (4,))


def form_of(array: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and type of an array."""
    return tuple(array.shape), getattr(array.dtype, "name", str(array.dtype))


def is_data(array: Any) -> bool:
    """Return whether something that goes in may hold samples: not a number, nor a key of random ones."""
    try:
        shape, name = tuple(array.shape), str(array.dtype)
    except (AttributeError, TypeError, ValueError):  # no array, or one without a known number of dimensions
        return False
    key = "key<" in name or (name == "uint32" and shape in KEYS)
    return bool(shape) and None not in shape and not key


def find_data(arguments: Sequence[Sequence[Any]], results: Sequence[Any]) -> list[int] | str:
    """Return where arrays lie that are not of the state, among the leaves of all ``arguments``; or why that is open.

    An argument is of the state if all its arrays come back in their form, each once. Where most of one do, as of the
    one that equinox makes of all, the others are its data.
    """
    left = Counter(form_of(each) for each in results if is_data(each))
    back = set(left)
    begins, at = [], 0
    for leaves in arguments:
        begins.append(at)
        at += len(leaves)
    places: list[int] = []
    for begin, leaves in sorted(zip(begins, arguments), key=lambda own: -len(own[1])):
        forms = Counter(form_of(each) for each in leaves if is_data(each))
        if forms and not forms - left:
            left -= forms
            continue
        rest = forms - left
        if sum(rest.values()) < sum((forms & left).values()):
            if back & set(rest):
                return LIKE_STATE
            left -= forms
            places += [begin + place for place, each in enumerate(leaves) if is_data(each) and form_of(each) in rest]
            continue
        if len(leaves) == 1 and back & set(forms):
            return LIKE_STATE
        places += [begin + place for place, each in enumerate(leaves) if is_data(each)]
    return sorted(places)


def amount_of(forms: Sequence[tuple[tuple[int, ...], str]]) -> InputAmount:
    """Return what a batch of arrays of these ``forms`` holds."""
    if not forms:
        return InputAmount(None, None, EMPTY, EMPTY)
    shapes = [shape for shape, _ in forms]
    tokens = _tokens(forms)
    rows, why = shapes[0][0], ""
    shown = min(map(len, shapes)) == 1 or (len(shapes[0]) == PICTURES and rows not in CHANNELS)
    if any(shape[0] != rows for shape in shapes):
        why = UNLIKE
    elif not shown and len(shapes) == 1:
        why = ALONE
    elif not shown and set.intersection(*map(set, shapes)) != {rows}:
        why = ORDER
    return InputAmount(None if why else rows, tokens, why, "" if tokens is not None else NO_TEXT)


def _tokens(forms: Sequence[tuple[tuple[int, ...], str]]) -> int | None:
    """Return the size of a text, of which there is another of the same form: the next token for each."""
    texts = Counter(form for form in forms if len(form[0]) == TEXTS and form[1] in INTEGERS)
    pairs = [shape for (shape, _), count in texts.items() if count > 1 and shape[1] > 1]
    return pairs[0][0] * pairs[0][1] if len(pairs) == 1 else None


class ArgumentAmounts:
    """What calls of one function hold, once it is known at which ``places`` arrays are data; at all if None."""

    def __init__(self, places: list[int] | str | None = None, *, mapped: bool = False) -> None:
        self.places, self.mapped = places, mapped
        self.amounts: dict[tuple[Any, ...], InputAmount] = {}

    def of(self, leaves: Sequence[Any]) -> InputAmount:
        """Return what a call with these ``leaves`` of its arguments holds."""
        if isinstance(self.places, str):
            return InputAmount(None, None, self.places, self.places)
        try:
            arrays = list(leaves) if self.places is None else [leaves[place] for place in self.places]
            shapes = tuple([each.shape for each in arrays])
        except (IndexError, AttributeError):  # a call of another form
            return InputAmount(None, None, LIKE_STATE, LIKE_STATE)
        amount = self.amounts.get(shapes)
        if amount is None:
            amount = self._look_at(arrays)
            if len(self.amounts) < FORMS:
                self.amounts[shapes] = amount
        return amount

    def _look_at(self, arrays: list[Any]) -> InputAmount:
        if not all(getattr(each, "is_fully_addressable", True) for each in arrays):
            return InputAmount(None, None, IN_PIECES, IN_PIECES)
        forms = [form_of(each) for each in arrays if is_data(each)]
        if self.mapped:  # the first dimension is that of devices
            forms = [((shape[0] * shape[1], *shape[2:]), kind) for shape, kind in forms if len(shape) > 1]
        return amount_of(forms)


def note_amount(recorder: Any, amount: InputAmount) -> None:
    """Note what a call holds that has just begun, where no loader gave it."""
    if recorder.sources.latest is not None or recorder.elsewhere_requests.seen:
        return
    if amount.samples is None:
        recorder.lines.note_unknown("samples", amount.why_no_samples)
    if amount.tokens is None:
        recorder.lines.note_unknown("tokens", amount.why_no_tokens)
    recorder.ledger.account.add_batch(BatchAmount(amount.samples, amount.tokens))
