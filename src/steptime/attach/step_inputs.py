"""What goes forward in a step of a script without a loader: its samples and tokens, where arrays show them.

An update learns from what went forward before its backward passes: one array for each, into one module. More of them
may be pairs, or the halves of an adversarial step: then nothing is counted, and the reason is on record.
"""

from __future__ import annotations

import zlib
from typing import Any, Collection, NamedTuple

SEVERAL = "several arrays go forward for one update"
AGAIN = "one array goes forward in several backward passes"
COMPUTED = "the first argument of what goes forward is not an array of the script's own"


class InputAmount(NamedTuple):
    """Samples and tokens of an array, or None with the reason."""

    samples: int | None = None
    tokens: int | None = None
    why_no_samples: str = ""
    why_no_tokens: str = ""


class PassInput(NamedTuple):
    """An array that went forward."""

    array: Any
    """A weak reference, of which an array has one."""
    version: int | None
    """How often the array was written to, as a buffer that takes one batch after the other; None if not counted."""
    module: int
    """Number of the outermost module that took it."""
    amount: InputAmount
    content: int | None
    """A checksum of its first values, where they were looked at."""
    closure: bool
    """Whether an optimizer asked for the pass, as L-BFGS does several times for one update."""

    @property
    def what(self) -> tuple[int, int | None]:
        """By which the same values are known: the array, and how often it was written to."""
        return id(self.array), self.version


class PassInputs:
    """What went forward behind so many backward passes; None in place of what was computed by another module."""

    def __init__(self) -> None:
        self.passes: dict[int, list[PassInput | None]] = {}

    def note(self, index: int, taken: PassInput | None) -> None:
        """Note that an array went forward behind ``index`` backward passes."""
        self.passes.setdefault(index, []).append(taken)

    def forget(self, index: int, places: Collection[int]) -> None:
        """Forget the arrays at ``places`` behind so many backward passes: nothing is trained by them."""
        if index in self.passes:
            self.passes[index] = [each for place, each in enumerate(self.passes[index]) if place not in places]

    def drop(self, first: int, end: int) -> None:
        """Forget those of passes that nothing was trained by."""
        for index in range(first, end):
            self.passes.pop(index, None)

    def part(self, first: int) -> PassInputs:
        """Return those behind ``first`` backward passes and more, as of a step that begins there; forget them here."""
        later = PassInputs()
        for index in [each for each in self.passes if each >= first]:
            later.passes[index - first] = self.passes.pop(index)
        return later

    def form(self, recorder: Any) -> dict[str, int]:
        """Return what the line of the step has of them; why it lacks something is written once."""
        if not self.passes:
            return {}
        counted = self._counted(recorder.micro_steps)
        amount = _sum(counted)
        line: dict[str, int] = {}
        if amount.samples is None:
            recorder.lines.note_unknown("samples", amount.why_no_samples)
        else:
            line["samples"] = amount.samples
        if amount.tokens is None:
            recorder.lines.note_unknown("tokens", amount.why_no_tokens)
        else:
            line["tokens"] = amount.tokens
        checksum = _checksum(counted)
        if checksum is not None:
            line["content"] = checksum
        return line

    def _counted(self, backward: int) -> list[PassInput] | str:
        """Return the arrays of the step's backward passes, each once, or why they cannot be counted."""
        if len(self.passes) == 1:  # as of most steps, of which what follows takes longer
            ((index, inputs),) = self.passes.items()
            if len(inputs) == 1 and inputs[0] is not None and index < backward:
                return [inputs[0]]
        firsts = []
        for index in sorted(self.passes):
            own = [taken for taken in self.passes[index] if taken is not None] if index < backward else []
            if any(taken.what != own[0].what for taken in own):
                return SEVERAL
            firsts += own[:1]
        return _each_once(firsts)


def _each_once(firsts: list[PassInput]) -> list[PassInput] | str:
    """Return arrays of several backward passes, each once."""
    uses: dict[tuple[int, int | None], list[PassInput]] = {}
    for taken in firsts:
        uses.setdefault(taken.what, []).append(taken)
    for same in uses.values():
        if len({taken.module for taken in same}) < len(same) and not all(taken.closure for taken in same):
            return AGAIN
    counted = [same[0] for same in uses.values()]
    return SEVERAL if len({taken.module for taken in counted}) > 1 else counted or COMPUTED


def _sum(counted: list[PassInput] | str) -> InputAmount:
    if isinstance(counted, str):
        return InputAmount(None, None, counted, counted)
    total = counted[0].amount
    for taken in counted[1:]:
        amount = taken.amount
        total = InputAmount(
            None if total.samples is None or amount.samples is None else total.samples + amount.samples,
            None if total.tokens is None or amount.tokens is None else total.tokens + amount.tokens,
            total.why_no_samples or amount.why_no_samples,
            total.why_no_tokens or amount.why_no_tokens,
        )
    return total


def _checksum(counted: list[PassInput] | str) -> int | None:
    checksum = None
    for taken in () if isinstance(counted, str) else counted:
        if taken.content is None:
            return None
        checksum = taken.content if checksum is None else zlib.crc32(b"%d" % taken.content, checksum)
    return checksum
