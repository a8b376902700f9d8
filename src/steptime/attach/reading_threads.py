"""Batches that threads of a script read from loaders, for the thread that trains or for an evaluation."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .batch_amount import BatchAmount

if TYPE_CHECKING:
    from .account import TimeSums

# Requests that wait for the end of a step at most, more are not counted; and batches of a size that did not go forward.
WAITING, GIVEN = 4096, 512


class RequestsElsewhere:
    """Batches that a thread of the script's own asked a loader for, while the one that trains takes them from it.

    Which of them are trained on is not seen, since the thread may read for an evaluation as well: those are that have
    as many samples as rows went forward with gradient. An array goes forward behind its batch; of one that does not,
    as of noise, nothing is known.
    """

    def __init__(self) -> None:
        self.seen = False
        self.others = False  # whether other arrays than batches go forward
        self.waiting: list[tuple[int, BatchAmount | None]] = []
        self.given: dict[int, deque[BatchAmount]] = {}  # what has not gone forward, by the number of samples
        self.array: Any = None  # refers to what went forward latest, and what it holds
        self.amount = BatchAmount()

    def add(self, duration: int, amount: BatchAmount | None) -> None:
        """Note a request that brought a batch, in the thread that made it."""
        self.seen = True
        if len(self.waiting) < WAITING:
            self.waiting.append((duration, amount))

    def set_evaluation_apart(self, recorder: Any) -> None:
        """Settle what the thread that trains asked loaders for, where a pass without gradient came after the batch."""
        if not self.seen or recorder.sources.latest is not None:
            return
        read = {request.source for request in recorder.pending if request.read_until}
        for request in recorder.pending:
            if request.source in read:
                request.settle(recorder.ledger, apart=recorder.ledger.waits)
        recorder.pending = [request for request in recorder.pending if request.source not in read]

    def take(self, account: TimeSums, recorder: Any) -> None:
        """Add what the step that ends has of them to its ``account``."""
        if not self.seen:
            return
        count = len(self.waiting)  # another thread goes on to add
        taken = self.waiting[:count]
        del self.waiting[:count]
        arrays = recorder.passes.arrays()
        if recorder.sources.latest is not None:
            rows = sum(rows for rows, _, _ in arrays) if arrays is not None else None
            if taken and account.amount is not None and arrays != [] and rows != account.amount.samples:
                account.amount = BatchAmount()  # those of the thread may have gone forward, too
                account.elsewhere = [count, sum(duration for duration, _ in taken)]
            return
        account.elsewhere = [count, sum(duration for duration, _ in taken)]
        for _, amount in taken:
            if amount is not None and amount.samples is not None:
                self.given.setdefault(amount.samples, deque(maxlen=GIVEN)).append(amount)
        amounts = [self._batch_of(*each) for each in arrays or ()]
        for amount in amounts or [BatchAmount()]:
            account.add_batch(amount)

    def _batch_of(self, rows: int, array: Any, length: int | None) -> BatchAmount:
        """Return what an ``array`` of so many rows of a ``length`` holds; nothing where it is none of the batches."""
        if array is None or array is not self.array:
            batches = self.given.get(rows)
            tokens = None if length is None else rows * length
            alike = next((each for each in batches or () if each.tokens in (None, tokens)), None)
            self.array, self.amount = array, alike or BatchAmount(rows if batches else None)
            self.others = self.others or not batches
            if batches:
                batches.remove(batches[0] if alike is None else alike)
        return BatchAmount() if self.others else self.amount.copy()
