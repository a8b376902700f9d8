"""The passes of a step: which of them its updates are made of, which update ends it, and the rows that go forward.

A backward pass whose gradients the script clears before an update makes adversarial examples, a saliency map or the
first half of a step of SAM: it is the step's own work, and no micro-step.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .step_inputs import PassInputs

if TYPE_CHECKING:
    from .batch_amount import BatchAmount

MIXED = -1  # in place of a number of rows: arrays of several went forward for one backward pass


class StepPasses:
    """What is known of the passes of the step that goes on."""

    def __init__(self) -> None:
        self.settled = 0  # backward passes that an update used, or whose gradients were dropped
        self.dropped = 0
        # Of the forwards behind each backward pass: their rows, None if not known, or `MIXED`, and the first's array.
        self.rows: dict[int, tuple[int | None, Any]] = {}
        self.inputs = PassInputs()  # where no loader is known
        self.at_update = (0, 0, 0)  # backward passes, forward passes and dropped ones at the latest update

    def forward(self, index: int, array: Any) -> None:
        """Note a forward of ``array`` behind so many backward passes; two of other rows may be of several loaders."""
        shape = getattr(array, "shape", None)
        rows = int(shape[0]) if shape else None
        if index not in self.rows:
            self.rows[index] = (rows, reference_to(array)) if shape else (None, None)
        elif rows is not None and self.rows[index][0] not in (None, rows):
            self.rows[index] = (MIXED, None)

    def updated(self, recorder: Any) -> None:
        """Note an update, which uses what was not dropped."""
        self.settled = recorder.micro_steps
        self.at_update = recorder.micro_steps, recorder.forwards, self.dropped

    def drop(self, recorder: Any) -> None:
        """Note that the gradients of the passes since the latest update were dropped."""
        for index in range(self.settled, recorder.micro_steps):
            self.rows.pop(index, None)
        self.inputs.drop(self.settled, recorder.micro_steps)
        self.dropped += max(0, recorder.micro_steps - self.settled)
        self.settled = recorder.micro_steps

    @staticmethod
    def may_begin_anew(recorder: Any) -> bool:
        """Return whether what follows the latest update may be another step, though no loader was asked since."""
        if not recorder.stepped or recorder.calls or recorder.sources.latest is None:
            return False
        return bool(recorder.rounds.may_begin_anew(recorder.optimizers))

    def update_ends(self, recorder: Any, optimizer: int | None) -> None:
        """Divide the step if the update by ``optimizer`` is another step's than the update before it.

        So it is of a batch that the script has divided, or had in hand: no request lies between the updates, a backward
        pass does.
        """
        if recorder.micro_steps <= self.at_update[0] or not self.may_begin_anew(recorder):
            return
        if recorder.rounds.begins_anew(recorder.optimizers, optimizer):
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
        rest.inputs = self.inputs.part(backward)
        self.dropped = dropped
        recorder.micro_steps, recorder.forwards = backward, forward
        del recorder.backwards[backward:]
        recorder.ledger.keep_passes()
        recorder.close(recorder.update_end_ns)
        recorder.micro_steps, recorder.forwards, recorder.backwards = later
        recorder.passes = rest

    def form(self, recorder: Any, requests: int, amount: BatchAmount | None) -> dict[str, int]:
        """Return what a step's line has of them, and of the batches of so many ``requests``."""
        micro_steps = max(recorder.micro_steps - self.dropped, min(1, recorder.micro_steps))
        line = {"micro_steps": micro_steps}
        if self.dropped:
            line["dropped"] = recorder.micro_steps - micro_steps
        if recorder.sources.latest is None:
            return line if amount is not None else {**line, **self.inputs.form(recorder)}
        if requests != 1:
            line["requests"] = requests
        rows = self.known_rows()
        if amount is not None and amount.single and rows == requests:
            amount.samples, amount.tokens = rows, None
        if requests != 1 and any(of_pass == MIXED for of_pass, _ in self.rows.values()):
            recorder.flags.add("mixed")
        elif rows is not None and (amount is None or rows != amount.samples):
            line["rows"] = rows
        return line

    def known_rows(self) -> int | None:
        """Return how many rows went forward for the update, those of one array once; None if that is not known."""
        total, seen = 0, set()
        for rows, reference in self.rows.values():
            if rows is None or rows == MIXED:
                return None
            if id(reference) not in seen:  # an array has one reference, which outlives it here
                total += rows
                seen.add(id(reference))
        return total or None


def reference_to(array: Any) -> Any:
    """Return a weak reference, or an object of its own to what has none."""
    try:
        return weakref.ref(array)
    except TypeError:
        return object()
