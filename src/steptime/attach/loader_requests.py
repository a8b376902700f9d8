"""Requests to loaders, and which of them an evaluation made that reads the batches of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .account import REGION
from .batch_amount import NO_BATCH

if TYPE_CHECKING:
    from .account import Ledger, TimeSums
    from .batch_amount import BatchAmount

# Share of the steps, from which on a number of batches is usual.
USUAL = 0.25
# Requests of other threads that wait for the end of a step at most; more are not counted.
WAITING = 4096


class LoaderRequest:
    """A request to a loader: by whom it was answered, and whether a batch came; ``region`` names its time.

    ``duration`` is without the regions inside of it.
    """

    __slots__ = ("amount", "begin", "delivered", "duration", "end", "read_until", "region", "source")

    def __init__(self, source: int, timed: tuple[int, int, int], region: str, amount: BatchAmount | None) -> None:
        self.source = source
        self.amount = amount
        self.begin, self.end, self.duration = timed
        self.region = region
        self.delivered = region == "input"
        self.read_until = 0  # the end of the last forward without gradient before the next request

    def settle(self, ledger: Ledger, *, apart: bool) -> None:
        """Add its time to a step's, or to what lies ``apart``."""
        if apart:
            ledger.extend_apart(self.begin, max(self.end, self.read_until))
        ledger.add((self.begin, REGION, self.region, self.duration))


class TrainingSources:
    """Which loaders give what is trained on, and which what is evaluated."""

    # Whether a pass without gradient may be a teacher's, ahead of the student's: of a process, in forks of it as well.
    teachers = False

    def __init__(self) -> None:
        self.latest: int | None = None  # the one that was asked last before a forward with gradient
        self.training: set[int] = set()
        self.evaluation: set[int] = set()
        self.taught: set[int] = set()  # behind whose batches a backward pass came
        self.since_backward: set[int] = set()
        self.asked: int | None = None  # whose batch the latest forward with gradient had
        self.undecided = False  # whether the latest batch may be one or the other

    def use(self, delivered: list[LoaderRequest], *, first: bool) -> None:
        """Note that a forward with gradient uses ``delivered``; ``first`` is whether no evaluation lies before it."""
        if self.latest is None or first:
            fresh = delivered[-1:] if self.latest is None else delivered
            self.training.update(request.source for request in fresh if request.source not in self.evaluation)
        self.asked = self.latest = delivered[-1].source
        self.training.add(self.latest)

    def is_evaluated(self, pending: list[LoaderRequest]) -> bool:
        """Return whether a forward with gradient is an evaluation's that is not marked as one.

        That is so from the second batch on of a loader behind which no backward pass ever came, where one came behind
        those of another.
        """
        source = next((request.source for request in reversed(pending) if request.delivered), None)
        if source is None:
            return False
        self.asked = source
        first = source not in self.since_backward and source not in self.evaluation
        if first:
            self.since_backward.add(source)
        if first or not self.taught or source in self.taught:
            return False
        self.evaluation.add(source)
        self.training.discard(source)
        self.since_backward.discard(source)
        return True

    def teach(self) -> None:
        """Note a backward pass: the batches since the one before were trained on."""
        if self.asked is not None:
            self.since_backward.add(self.asked)
        for source in self.since_backward - self.taught:
            self.evaluation.discard(source)
            self.training.add(source)
        self.taught |= self.since_backward
        self.since_backward = set()

    def forget(self) -> None:
        """Note that the batches since the latest backward pass were not trained on."""
        untrained = self.since_backward - self.taught
        self.evaluation |= untrained
        self.training -= untrained
        self.since_backward = set()

    def others(self, pending: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return the requests to loaders that are not of the training, as a pass without gradient shows.

        The first batch of a loader that is not known may yet be trained on, behind a teacher's pass: it is undecided.
        """
        delivered = [request.source for request in pending if request.delivered]
        latest = delivered[-1] if delivered else 0
        alone = delivered.count(latest) == 1
        self.undecided = self.teachers and alone and latest not in self.training | self.evaluation
        return [
            request
            for request in pending
            if request.source not in self.training and not (self.undecided and request.source == latest)
        ]

    def settle_others(self, pending: list[LoaderRequest], ledger: Ledger) -> None:
        """Settle what other loaders answered; one that only began, and of which no batch is seen, is the step's own."""
        for request in pending:
            if request.source not in self.training:
                giving = any(each.delivered and each.source == request.source for each in pending)
                began = request.region == "loader_start" and not giving
                request.settle(ledger, apart=ledger.waits and not began)

    def of(self, pending: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return those of the requests that loaders of the training answered."""
        for request in pending:
            if request.source not in self.training:
                return [request for request in pending if request.source in self.training]
        return pending[:]


class EvaluatedReads:
    """Finds batches of the training's own loader that an evaluation read.

    It reads one after the other without gradient. As many before every step are the step's own, as of a loader that
    gives pairs.
    """

    def __init__(self) -> None:
        self.usual: int | None = None

    def count(self, requests: list[LoaderRequest], *, begun: bool) -> int:
        """Return how many of ``requests``, before the one that is trained on, belong to an evaluation.

        ``begun`` is whether a step came before.
        """
        if len(requests) < 2:  # noqa: PLR2004 - one before another
            self.usual = 0 if begun else self.usual
            return 0
        last = max((index for index, request in enumerate(requests) if request.delivered), default=0)
        read = [index for index, request in enumerate(requests[:last]) if request.read_until]
        usual = self.usual or 0
        if begun:
            self.usual = len(read) if self.usual is None else min(usual, len(read))
        if len(read) <= usual:
            return 0
        end = read[-1] + 1
        while requests[end].region == "epoch":
            end += 1
        return end

    def set_apart(
        self, requests: list[LoaderRequest], ledger: Ledger, *, begun: bool, stepped: bool
    ) -> list[LoaderRequest]:
        """Set apart those of ``requests`` that an evaluation made, before the first step or behind an update.

        Returns:
            those of the step.
        """
        if begun and not stepped:
            return requests
        count = self.count(requests, begun=begun)
        if not count:
            return requests
        evaluated = requests[:count]
        for request in evaluated:
            request.settle(ledger, apart=request.region != "epoch")
        ledger.extend_apart(evaluated[-1].begin, max(request.read_until for request in evaluated))
        return requests[count:]

    def last(self, requests: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return those that an evaluation made, where none of ``requests`` is trained on."""
        read = [request for request in requests if request.read_until]
        return read if len(read) > (self.usual or 0) else []


class UntrainedBatches:
    """Counts the batches of a step that go forward with gradients before another one does, and no backward pass.

    As many in every step are its own, as where a loss is over several batches; more are an evaluation's.
    """

    def __init__(self) -> None:
        self.usual: int | None = None
        self.count = 0

    @property
    def evaluates(self) -> bool:
        """Whether the step that goes on has more than is usual."""
        return self.usual is not None and self.count > self.usual

    def add(self) -> bool:
        """Note one; return whether an evaluation had it."""
        self.count += 1
        return self.evaluates

    def end_step(self) -> None:
        """Learn what is usual."""
        self.usual = self.count if self.usual is None else min(self.usual, self.count)
        self.count = 0

    @staticmethod
    def begin_of_batch(requests: list[LoaderRequest]) -> int:
        """Return when the first of ``requests`` began behind the one that ended an epoch."""
        ended = [index for index, request in enumerate(requests) if request.region == "epoch"]
        first = ended[-1] + 1 if ended and ended[-1] + 1 < len(requests) else 0
        return requests[first].begin


class StepBatches:
    """The batches of a step, less those that the script fetched and dropped (`break`, `continue`).

    Such a one is followed by another of its loader before anything goes forward, and its step has more batches beyond
    its passes than is usual, so that pairs and batches fetched together are none. The first of an iterator may be asked
    for ahead.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[BatchAmount | None, bool]] = []  # and whether it may be dropped
        self.latest = 0  # of them, the first of the latest pass
        self.failed = False  # whether that ended in an exception
        self.steps = 0
        self.keeps = False  # whether batches were in hand, for which no loader was asked
        self.seen: tuple[dict[int, int], dict[int, int]] = ({}, {})  # batches that may be dropped, and beyond passes

    def take(self, requests: list[LoaderRequest], ledger: Ledger) -> None:
        """Settle the ``requests`` behind which something goes forward."""
        begun: set[int] = set()
        if any(request.delivered for request in requests):
            if self.failed:
                del self.taken[self.latest :]
            self.latest, self.failed = len(self.taken), False
        for index, request in enumerate(requests):
            request.settle(ledger, apart=False)
            followed = request.delivered and request.source not in begun and is_followed(requests, index)
            self.taken.append((request.amount, followed))
            begun.discard(request.source)
            if request.region == "loader_start":
                begun.add(request.source)

    def fail(self) -> None:
        """Note that the latest pass has failed: what it had counts only if no other batch comes before the next."""
        self.failed = True

    def end_step(self, account: TimeSums, passes: int, rows: int | None) -> int:
        """Move the batches of a step with so many ``passes`` to its ``account``; return how many these are.

        Where nothing is usual yet, as behind a loop that begins with `continue`, the ``rows`` that went forward show
        it. A script that has steps without any request keeps batches, and drops none.
        """
        taken, self.taken, self.latest, self.failed = self.taken, [], 0, False
        followed = sum(may for _, may in taken)
        batches = sum(amount is not NO_BATCH and amount is not None for amount, _ in taken)
        self.steps += 1
        extra = followed
        for seen, count in zip(self.seen, (followed, batches - passes)):
            seen[count] = seen.get(count, 0) + 1
            if followed:
                usual = [each for each, times in seen.items() if times >= USUAL * self.steps]
                extra = max(0, min(extra, count - min(usual))) if usual else 0
        self.keeps = self.keeps or not taken
        first = self.steps == 1
        if first and rows is not None and rows == _samples(taken[-passes:]):
            extra = max(0, batches - passes)
        elif self.keeps or (extra and not _fits(rows, taken, extra)):
            extra = 0
        batches -= extra
        for amount, may in taken:
            if (may or (first and amount is not None)) and extra > 0:
                extra -= 1
            else:
                account.add_batch(amount)
        return batches


def _samples(taken: list[tuple[BatchAmount | None, bool]]) -> int:
    return sum(amount.samples or 0 for amount, _ in taken if amount is not None)


def _fits(rows: int | None, taken: list[tuple[BatchAmount | None, bool]], extra: int) -> bool:
    """Return whether the ``rows`` that went forward, if they are known, may be of the batches without ``extra``."""
    all_samples = _samples(taken)
    kept = all_samples - _samples([each for each in taken if each[1]][:extra])
    return rows is None or not kept or (rows != all_samples and rows % kept == 0)


def is_followed(requests: list[LoaderRequest], index: int) -> bool:
    """Return whether behind the one at ``index`` the same loader brought a batch."""
    source = requests[index].source
    return any(each.delivered and each.source == source for each in requests[index + 1 :])


class RequestsElsewhere:
    """Batches that a thread of the script's own asked a loader for, while the one that trains takes them from it."""

    def __init__(self) -> None:
        self.seen = False
        self.waiting: list[tuple[int, BatchAmount | None]] = []

    def add(self, duration: int, amount: BatchAmount | None) -> None:
        """Note a request that brought a batch, in the thread that made it."""
        self.seen = True
        if len(self.waiting) < WAITING:
            self.waiting.append((duration, amount))

    def take(self, account: TimeSums) -> None:
        """Move the batches since the step before to the account of this one."""
        if not self.seen:
            return
        count = len(self.waiting)  # another thread goes on to add
        taken = self.waiting[:count]
        del self.waiting[:count]
        account.add_batch(NO_BATCH)
        for _, amount in taken:
            account.add_batch(amount)
        account.elsewhere = [count, sum(duration for duration, _ in taken)]
