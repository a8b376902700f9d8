"""The passes of a step: which of them its updates are made of, which update ends it, and the rows that go forward.

A backward pass whose gradients the script clears before an update makes adversarial examples, a saliency map or the
first half of a step of SAM: it is the step's own work, and no micro-step. Nor is a further one of the same forward, of
a second loss.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .step_inputs import PassInputs

if TYPE_CHECKING:
    from .batch_amount import BatchAmount
    from .loader_requests import LoaderRequest

MIXED = -1  # in place of a number of rows: arrays of several went forward for one backward pass


class StepPasses:
    """What is known of the passes of the step that goes on."""

    def __init__(self) -> None:
        self.settled = 0  # backward passes that an update used, or whose gradients were dropped
        # Of those dropped since the latest update: their rows and first array, and the inputs of their forwards.
        self.put_aside: dict[int, tuple[tuple[int | None, Any] | None, Any]] = {}
        self.dropped = self.left_out = 0  # the second: forward passes that no backward pass followed
        self.cleared = 0  # rows of batches that went forward in passes that were dropped, and in no other
        self.further: set[int] = set()  # backward passes of a forward that had one
        self.keeps_graph = False  # whether the latest backward pass has kept the graph
        # Of the forwards behind each backward pass: their rows, None if not known, or `MIXED`, and the first's array.
        self.rows: dict[int, tuple[int | None, Any]] = {}
        self.inputs = PassInputs()  # where no loader is known
        self.lengths: dict[int, int] = {}  # of the rows of these arrays, where they have one
        self.versions: dict[int, int | None] = {}  # how often each was changed in place
        self.viewed: list[tuple[Any, int]] = []  # of arrays that are views: of what, and from which value on
        self.read_behind = 0  # the group of batches behind which passes without gradient read other loaders, if any
        self.halted = False  # whether an evaluation goes on while no update has used the gradients of the step
        self.at_update = (0, 0, 0)  # backward passes, forward passes and dropped ones at the latest update

    def forward(self, index: int, array: Any) -> None:
        """Note a forward of ``array`` behind so many backward passes; two of other rows may be of several loaders."""
        shape = getattr(array, "shape", None)
        if shape and shape[0] is None:  # as of what Keras makes a model of
            shape = None
        rows = int(shape[0]) if shape else None
        base = getattr(array, "_base", None)
        if base is not None:
            self.viewed.append((reference_to(base), array.storage_offset()))
        if index not in self.rows:
            self.rows[index] = (rows, reference_to(array)) if shape else (None, None)
            self.versions[index] = version_of(array)
            if shape and len(shape) > 1:
                self.lengths[index] = shape[1]
        elif rows is not None and self.rows[index][0] not in (None, rows):
            self.rows[index] = (MIXED, None)

    def has_trained(self, recorder: Any, array: Any) -> bool:
        """Return whether the step has trained on ``array`` or a view of its values, and asked for no batch since.

        The script looks at its batch once more, as for the accuracy behind the update.
        """
        if not recorder.stepped or recorder.pending or recorder.sources.latest is None:
            return False
        base = getattr(array, "_base", None)
        own = [array] if base is None else [array, base]
        if any(_is_one_of(reference, own) for _, reference in self.rows.values()):
            return True
        begin = 0 if base is None else array.storage_offset()
        return any(begin == offset and _is_one_of(reference, own[-1:]) for reference, offset in self.viewed)

    def backward_begins(self, recorder: Any, *, keeps_graph: bool) -> None:
        """Note a backward pass, which is a further one if no forward came since the one before it.

        That one has kept the graph, or there are fewer forward passes: a loss for each of several batches is none.
        """
        passes = recorder.micro_steps
        if passes not in self.rows and recorder.forwards and passes > (0 if recorder.by_hand else self.settled):
            used = passes - len(self.further)
            if (self.keeps_graph or recorder.forwards <= used) and recorder.batches.count() <= used:
                self.further.add(passes)
        self.keeps_graph = keeps_graph

    def leave_out(self, recorder: Any, group: int, forwards: int) -> None:
        """Note that no backward pass follows so many ``forwards`` on a ``group`` of batches."""
        recorder.batches.leave_out(group)
        recorder.forwards = max(0, recorder.forwards - forwards)
        self.left_out += forwards
        if self.rows.get(recorder.micro_steps, (0, None))[0] == MIXED:
            self.rows[recorder.micro_steps] = (None, None)

    def updated(self, recorder: Any) -> None:
        """Note an update, which uses what was not dropped."""
        self.settled = recorder.micro_steps
        given = recorder.batches.samples() if self.put_aside else 0
        if given and self._had_own_samples(given):
            self.cleared += sum(own[0] or 0 for own, _ in self.put_aside.values() if own is not None)
        self.put_aside = {}
        self.at_update = recorder.micro_steps, recorder.forwards, self.dropped

    def drop(self, recorder: Any) -> None:
        """Note that the gradients of the passes since the latest update were dropped."""
        for index in range(self.settled, recorder.micro_steps):
            self.put_aside[index] = self.rows.pop(index, None), self.inputs.passes.pop(index, None)
        self.further = {index for index in self.further if index < self.settled}
        self.dropped += max(0, recorder.micro_steps - self.settled)
        self.settled = recorder.micro_steps

    def take_back(self, recorder: Any) -> None:
        """Count passes dropped since the latest update: the script has kept their gradients elsewhere, and uses them.

        That is so of those that had samples of their own; several of one batch are the step's own work.
        """
        if not self._had_own_samples(recorder.batches.samples()):
            return
        self.dropped -= len(self.put_aside)
        for index, (own, inputs) in self.put_aside.items():
            if own is not None:
                self.rows[index] = own
            if inputs is not None:
                self.inputs.passes[index] = inputs
        self.put_aside = {}

    def _had_own_samples(self, given: int) -> bool:
        """Return whether each pass of the step had its own array, and all together no more rows than were ``given``."""
        known = [*self.rows.values(), *(rows for rows, _ in self.put_aside.values())]
        rows = [each[0] for each in known if each is not None and each[0] is not None]
        arrays = {id(each[1]) for each in known if each is not None}
        if len(rows) < len(known) or MIXED in rows or len(arrays) < len(known):
            return False
        return not given or sum(rows) <= given

    @staticmethod
    def may_begin_anew(recorder: Any) -> bool:
        """Return whether what follows the latest update may be another step, though no loader was asked since."""
        if not recorder.stepped or recorder.calls or recorder.sources.latest is None:
            return False
        return bool(recorder.rounds.may_begin_anew(recorder.optimizers, in_hand=not recorder.batches.taken))

    def halt(self, recorder: Any, others: list[LoaderRequest]) -> bool:
        """Return whether an evaluation goes on in the step: one of the loaders of ``others`` began to give batches.

        So it is behind an epoch whose last gradients wait for those of the next.
        """
        giving = {request.source for request in others if request.delivered}
        began = any(request.region == "loader_start" and request.source in giving for request in others)
        if began and recorder.micro_steps and not (recorder.stepped or recorder.calls):
            self.halted = recorder.ledger.waits = True
        return self.halted

    def go_on(self, recorder: Any, *, forward: bool) -> None:
        """Settle what waits, since the step goes on with a ``forward`` or backward pass.

        What was read for others in it is an evaluation's if nothing of the step went forward before (of a second
        network), or what did was left out, which shows in the backward pass.
        """
        if self.may_begin_anew(recorder):
            return
        read_between = recorder.ledger.after is not None and self.read_behind > 0
        if forward and read_between and recorder._awaits_backward() and not recorder.stack:
            return
        left_out = read_between and not recorder.batches.holds(self.read_behind)
        begins = not recorder.micro_steps and (left_out or not recorder.forwards)
        recorder.ledger.resume(keeps_apart=begins or self.halted)
        self.halted = False

    def update_ends(self, recorder: Any, optimizer: int | None) -> None:
        """Divide the step if the update by ``optimizer`` is another step's than the update before it.

        So it is of a batch that the script has divided, or had in hand: no request lies between the updates, a backward
        pass does.
        """
        if recorder.micro_steps <= self.at_update[0] or not self.may_begin_anew(recorder):
            return
        if recorder.rounds.begins_anew(recorder.optimizers, optimizer, in_hand=not recorder.batches.taken):
            self._divide(recorder)
        else:
            recorder.ledger.resume()

    def _divide(self, recorder: Any) -> None:
        """End the step of ``recorder`` at its latest update, with the passes before it; the others are the next's."""
        backward, forward, dropped = self.at_update
        later = recorder.micro_steps - backward, recorder.forwards - forward, recorder.backwards[backward:]
        rest = StepPasses()
        rest.dropped, rest.settled = self.dropped - dropped, max(0, self.settled - backward)
        rest.rows = {index - backward: known for index, known in self.rows.items() if index >= backward}
        self.rows = {index: known for index, known in self.rows.items() if index < backward}
        rest.versions = {index - backward: known for index, known in self.versions.items() if index >= backward}
        rest.inputs = self.inputs.part(backward)
        rest.lengths = {index - backward: length for index, length in self.lengths.items() if index >= backward}
        rest.further = {index - backward for index in self.further if index >= backward}
        rest.keeps_graph = self.keeps_graph
        self.further = {index for index in self.further if index < backward}
        self.dropped = dropped
        recorder.micro_steps, recorder.forwards = backward, forward
        del recorder.backwards[backward:]
        recorder.ledger.keep_passes()
        recorder.close(recorder.update_end_ns)
        recorder.micro_steps, recorder.forwards, recorder.backwards = later
        recorder.passes = rest

    def form(self, recorder: Any, requests: int, amount: BatchAmount | None) -> dict[str, int]:
        """Return what a step's line has of them, and of the batches of so many ``requests``."""
        passes = recorder.micro_steps - len(self.further)
        micro_steps = max(passes - self.dropped, min(1, passes))
        line = {"micro_steps": micro_steps}
        if passes > micro_steps:
            line["dropped"] = passes - micro_steps
        if self.further:
            line["further"] = len(self.further)
        if self.left_out:
            line["left_out"] = self.left_out
        self._flag_same_batch(recorder, requests)
        if recorder.sources.latest is None:
            return line if amount is not None else {**line, **self.inputs.form(recorder)}
        if requests != 1:
            line["requests"] = requests
        rows = self.known_rows()
        if amount is not None:
            self._settle(amount, requests, rows)
        if requests != 1 and self.is_mixed():
            recorder.flags.add("mixed")
        elif rows is not None and (amount is None or rows != amount.samples):
            line["rows"] = rows
        return line

    def _settle(self, amount: BatchAmount, requests: int, rows: int | None) -> None:
        """Settle what batches hold by the ``rows`` that went forward: single samples, and none that were dropped."""
        if amount.single and rows == requests:
            amount.samples, amount.tokens = rows, None
        elif amount.rows and amount.rows == rows:
            amount.samples = rows
        elif self.cleared and amount.samples == self.cleared + (rows or 0):
            even = len(set(self.lengths.values())) == 1 and amount.tokens is not None
            amount.tokens = (amount.tokens or 0) * (rows or 0) // amount.samples if even else None
            amount.samples = rows
        elif rows is not None and rows == amount.samples and len(lengths := set(self.lengths.values())) == 1:
            self._settle_tokens(amount, rows, lengths.pop())

    @staticmethod
    def _settle_tokens(amount: BatchAmount, rows: int, length: int) -> None:
        """Leave out the last token of each row, where it is only what is learnt: rows of ``length`` went forward."""
        if amount.tokens == rows * (length + 1):
            amount.tokens = rows * length

    def _flag_same_batch(self, recorder: Any, requests: int) -> None:
        """Flag the step if the arrays that went forward are those of the step before, as they were then."""
        former = recorder.batches.former
        now = recorder.batches.former = [(self.rows[index][1], self.versions.get(index)) for index in self.rows]
        known = bool(now) and len(now) == len(former) and all(None not in each for each in now)
        same = known and all(one is other and then == since for (one, then), (other, since) in zip(former, now))
        if same and (not requests or recorder.sources.latest is None):
            recorder.flags.add("same_batch")

    def is_mixed(self) -> bool:
        """Return whether arrays of several numbers of rows went forward for one backward pass."""
        return any(rows == MIXED for rows, _ in self.rows.values())

    def known_rows(self) -> int | None:
        """Return how many rows went forward for the update, those of one array once; None if that is not known."""
        arrays = self.arrays()
        return sum(rows for rows, _, _ in arrays) or None if arrays else None

    def arrays(self) -> list[tuple[int, Any, int | None]] | None:
        """Return the rows of each array that went forward, what refers to it, and their length; None as above."""
        arrays: dict[int, tuple[int, Any, int | None]] = {}
        for index, (rows, reference) in self.rows.items():
            if rows is None or rows == MIXED:
                return None
            # An array has one reference, which outlives it here.
            arrays.setdefault(id(reference), (rows, reference, self.lengths.get(index)))
        return list(arrays.values())


def _is_one_of(reference: Any, arrays: list[Any]) -> bool:
    return isinstance(reference, weakref.ref) and any(reference() is array for array in arrays)


def version_of(array: Any) -> int | None:
    """Return how often an array was changed in place, or None if nothing counts that."""
    try:
        return getattr(array, "_version", None)
    except RuntimeError:  # an array of torch's inference mode
        return None


def reference_to(array: Any) -> Any:
    """Return a weak reference, or an object of its own to what has none."""
    try:
        return weakref.ref(array)
    except TypeError:
        return object()
