"""Requests to loaders, and which of them an evaluation made that reads the batches of the training."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from .account import REGION
from .batch_amount import NO_BATCH

if TYPE_CHECKING:
    from .account import Ledger, TimeSums
    from .batch_amount import BatchAmount

# Share of the steps, from which on a number of batches is usual.
USUAL = 0.25


class LoaderRequest:
    """A request to a loader: by whom it was answered, and whether a batch came; ``region`` names its time.

    ``duration`` is without the regions inside of it; ``iterator`` is the address of the one that was asked, 0 if it is
    not known; ``seen`` counts the lines of the script that were seen in it, for its place.
    """

    __slots__ = (
        "amount",
        "array",
        "begin",
        "delivered",
        "duration",
        "end",
        "iterator",
        "read_until",
        "region",
        "seen",
        "source",
    )

    def __init__(
        self, source: int, timed: tuple[int, int, int], region: str, amount: BatchAmount | None, iterator: int = 0
    ) -> None:
        self.seen: Callable[[str], None] | None = None
        self.source, self.iterator = source, iterator
        self.amount = amount
        self.begin, self.end, self.duration = timed
        self.region = region
        self.delivered = region == "input"
        self.read_until = 0  # the end of the last forward without gradient before the next request
        self.array: Any = None  # refers to what the first of these took

    def read_by(self, array: Any) -> None:
        """Note that ``array`` went forward without gradient behind the request."""
        if self.array is None and hasattr(array, "shape"):
            try:
                self.array = weakref.ref(array)
            except TypeError:  # what takes no reference
                return

    def is_kept(self) -> bool:
        """Return whether the script still has what went forward without gradient: it may train on it yet."""
        return self.array is not None and self.array() is not None

    def settle(self, ledger: Ledger, *, apart: bool) -> None:
        """Add its time to a step's, or to what lies ``apart``."""
        if apart:
            ledger.extend_apart(self.begin, max(self.end, self.read_until))
        ledger.add((self.begin, REGION, self.region, self.duration))
        if self.seen is not None:
            self.seen("evaluation" if apart else "input")


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

    def use(self, delivered: list[LoaderRequest], pending: list[LoaderRequest], *, first: bool) -> None:
        """Note that a forward with gradient uses those ``delivered`` of ``pending``.

        ``first`` is whether no evaluation lies before it.
        """
        fresh = delivered if first and self.latest is not None else delivered_together(delivered, pending)
        self.training.update(request.source for request in fresh if request.source not in self.evaluation)
        self.asked = self.latest = delivered[-1].source
        self.training.add(self.latest)

    def is_evaluated(self, pending: list[LoaderRequest]) -> bool:
        """Return whether a forward with gradient is an evaluation's that is not marked as one.

        That is so from the second batch on of a loader behind which no backward pass ever came, where one came behind
        those of another. Where iterators are known, a script may leave out the first batches of a new one: what they
        were shows when another is asked (`UntrainedBatches`).
        """
        latest = next((request for request in reversed(pending) if request.delivered), None)
        if latest is None:
            return False
        source = self.asked = latest.source
        known = source in self.evaluation
        first = not known and source not in self.since_backward
        if first:
            self.since_backward.add(source)
        if first or not self.taught or source in self.taught or (latest.iterator and not known):
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
        """Note that the batches since the latest backward pass were not trained on, but for those asked for now."""
        now_asked = set() if self.asked is None else {self.asked}
        untrained = self.since_backward - self.taught - now_asked
        self.evaluation |= untrained
        self.training -= untrained
        self.since_backward &= now_asked

    def others(self, pending: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return the requests to loaders that are not of the training, as a pass without gradient shows.

        The first batch of a loader that is not known may yet be trained on, behind a teacher's pass: it is undecided.
        So are further ones while the script keeps those before, as for features that a loss over several batches needs.
        """
        delivered = [request for request in pending if request.delivered]
        latest = delivered[-1].source if delivered else 0
        before = [request for request in delivered if request.source == latest][:-1]
        unknown = bool(delivered) and latest not in self.training | self.evaluation
        self.undecided = self.teachers and unknown and all(request.is_kept() for request in before)
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

    def read(self, pending: list[LoaderRequest], array: Any) -> bool:
        """Note that ``array`` goes forward without gradient; return whether a loader of the training gave a batch."""
        if pending:
            pending[-1].read_by(array)
        return any(request.delivered for request in self.of(pending))

    def of(self, pending: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return those of the requests that loaders of the training answered."""
        for request in pending:
            if request.source not in self.training:
                return [request for request in pending if request.source in self.training]
        return pending[:]


def delivered_together(delivered: list[LoaderRequest], pending: list[LoaderRequest]) -> list[LoaderRequest]:
    """Return those ``delivered`` that a first forward has by all likelihood: the last, and one of each other loader.

    These were asked once all iterators had begun, as by `zip`; one that gave a batch ahead of that may have been looked
    at, and one without gradient behind whose batch a pass came is an evaluation's.
    """
    began = max((index for index, request in enumerate(pending) if request.region == "loader_start"), default=0)
    read = {request.source for request in pending if request.read_until}
    asked = [request for request in pending[began:] if request.delivered and request.source not in read]
    alone = len({request.source for request in asked}) == len(asked) and delivered[-1] in asked
    return asked if alone and began else delivered[-1:]


class EvaluatedReads:
    """Finds batches of the training's own loader that an evaluation read.

    It reads one after the other without gradient. As many before every step are the step's own, as of a loader that
    gives pairs, but for those that came before the loader began anew: of folds of one data set, and of epochs of one
    batch. A script that reads several at once before it trains on them may drop the rest of an epoch: fewer than it
    reads at once, of which no loader began since the update, are its own.
    """

    def __init__(self) -> None:
        self.usual: int | None = None
        self.together = 0  # batches of the latest step that were read before it trained on them

    def count(self, requests: list[LoaderRequest], *, begun: bool, array: Any = None) -> int:
        """Return how many of ``requests``, before the one that is trained on, belong to an evaluation.

        ``begun`` is whether a step came before; ``array`` goes forward now, which the step has read before if it went
        forward without gradient.
        """
        if len(requests) < 2:  # noqa: PLR2004 - one before another
            self.usual = 0 if begun else self.usual
            return 0
        last = max((index for index, request in enumerate(requests) if request.delivered), default=0)
        anew = max((index for index in range(last) if requests[index].region == "loader_start"), default=-1)
        first = own_from(requests, last, array)
        self.together = last + 1 - first
        read = [at for at, request in enumerate(requests[:first]) if request.read_until]
        own, usual = [index for index in read if index > anew], self.usual or 0
        if begun:
            self.usual = len(own) if self.usual is None else min(usual, len(own))
        if len(own) <= usual:
            read = [index for index in read if index < anew]
        if not read:
            return 0
        end = read[-1] + 1
        while requests[end].region == "epoch":
            end += 1
        return end

    def set_apart(self, requests: list[LoaderRequest], recorder: Any, array: Any) -> list[LoaderRequest]:
        """Set apart those of ``requests`` that an evaluation made, before the first step or behind an update.

        ``array`` goes forward now. Returns those of the step.
        """
        ledger, begun = recorder.ledger, recorder.begin is not None
        amid = recorder.micro_steps > 0 and not recorder.stepped  # behind an epoch whose last gradients wait
        if begun and not recorder.stepped and not (amid and recorder.ledger.waits):
            return requests
        count = self.count(requests, begun=begun, array=array)
        if not count:
            return requests
        evaluated = requests[:count]
        dropped = self._are_dropped(evaluated)
        for request in evaluated:
            request.settle(ledger, apart=request.region != "epoch" and not dropped)
        if not dropped:
            recorder.passes.halted = amid
            ledger.extend_apart(evaluated[-1].begin, max(request.read_until for request in evaluated))
        return requests[count:]

    def _are_dropped(self, requests: list[LoaderRequest]) -> bool:
        """Return whether ``requests``, which the script read and does not train on, are the rest of an epoch."""
        began = any(request.region == "loader_start" for request in requests)
        return not began and sum(request.delivered for request in requests) < self.together

    def last(self, requests: list[LoaderRequest]) -> list[LoaderRequest]:
        """Return those that an evaluation made, where none of ``requests`` is trained on."""
        read = [request for request in requests if request.read_until]
        return read if len(read) > (self.usual or 0) and not self._are_dropped(requests) else []


def own_from(requests: list[LoaderRequest], last: int, array: Any) -> int:
    """Return from which of ``requests`` on they are the step's own, since ``array`` was read behind one of them.

    That goes back over those whose arrays the script has kept as well; ``last`` where none of them was read before.
    """
    if array is None or not any(request.array is not None and request.array() is array for request in requests):
        return last
    while last and requests[last - 1].is_kept():
        last -= 1
    return last


class UntrainedBatches:
    """Counts the batches of a step that go forward with gradients before another one does, and no backward pass.

    As many in every step are its own, as where a loss is over several batches; more are an evaluation's, unless the
    script trains on others of the same iterator: then it has left them out, behind their forward (`continue`).
    """

    def __init__(self) -> None:
        self.usual: int | None = None
        self.count = 0
        self.iterator = 0  # that gave what went forward latest
        self.trains = False  # whether a backward pass came behind a batch of it
        self.sources: set[int] = set()  # of the batches of the step
        self.kept = False  # whether the graph of the batch before is kept, as of a loss that another is added to

    @property
    def evaluates(self) -> bool:
        """Whether the step that goes on has more than is usual."""
        return self.usual is not None and self.count > self.usual

    def look_back(self, recorder: Any) -> None:
        """Set apart what the step has so far, if an evaluation had it, as another batch goes forward."""
        leaves_out, source = self._leaves_out(recorder.pending), recorder.pending[-1].source
        added = self.kept and source not in self.sources
        if not recorder._awaits_backward():
            self.sources = {source}
            return
        self.sources.add(source)
        self.count += 1
        if self.evaluates and not (leaves_out or added):
            recorder.sources.forget()
            recorder.batches.taken, recorder.batches.asked = [], set()
            recorder.forwards, recorder.passes.rows = 0, {}
            recorder.ledger.set_apart(recorder.begin or 0, self.begin_of_batch(recorder.pending))

    def _leaves_out(self, requests: list[LoaderRequest]) -> bool:
        """Return whether the batch before that of ``requests`` is one that the script leaves out, if not trained on."""
        latest = next(request for request in reversed(requests) if request.delivered)
        began = any(each.region == "loader_start" and each.source == latest.source for each in requests)
        same = latest.iterator == self.iterator and not began
        leaves_out = self.iterator != 0 and (same or self.trains)
        if not same:
            self.iterator, self.trains = latest.iterator, False
        return leaves_out

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
        self.taken: list[tuple[BatchAmount | None, bool, int]] = []  # whether it may be dropped, and its group
        self.group = self.trained = 0  # batches that went forward together, and those before the latest backward pass
        self.asked: set[int] = set()  # iterators that gave the latest
        self.latest = 0  # of them, the first of the latest pass
        self.failed = False  # whether that ended in an exception
        self.steps = 0
        self.keeps = False  # whether batches were in hand, for which no loader was asked
        self.former: list[tuple[Any, Any]] = []  # arrays that went forward in the step before, and their versions
        self.seen: tuple[dict[int, int], dict[int, int]] = ({}, {})  # batches that may be dropped, and beyond passes

    def take(self, requests: list[LoaderRequest], ledger: Ledger) -> None:
        """Settle the ``requests`` behind which something goes forward."""
        begun: set[int] = set()
        if any(request.delivered for request in requests):
            if self.failed:
                del self.taken[self.latest :]
            self.latest, self.failed = len(self.taken), False
            self.group += 1
        for index, request in enumerate(requests):
            request.settle(ledger, apart=False)
            followed = request.delivered and request.source not in begun and is_followed(requests, index, self.asked)
            self.taken.append((request.amount, followed, self.group))
            begun.discard(request.source)
            if request.region == "loader_start":
                begun.add(request.source)
        self.asked = {request.iterator for request in requests if request.delivered}

    def groups(self) -> list[int]:
        """Return the groups that went forward since the latest backward pass."""
        return sorted({group for _, _, group in self.taken if group > self.trained})

    def count(self) -> int:
        """Return how many groups the step has so far."""
        return len({group for _, _, group in self.taken})

    def samples(self) -> int:
        """Return how many samples the batches of the step have so far, of those of which it is known."""
        return _samples(self.taken)

    def holds(self, group: int) -> bool:
        """Return whether the step has batches of ``group`` or one before it."""
        return any(own <= group for _, _, own in self.taken)

    def leave_out(self, group: int) -> None:
        """Count a ``group`` no more, on which nothing is trained."""
        left = [each for each in self.taken if each[2] != group]
        self.latest -= len(self.taken) - len(left)  # it lies behind them
        self.taken = left

    def fail(self) -> None:
        """Note that the latest pass has failed: what it had counts only if no other batch comes before the next."""
        self.failed = True

    def end_step(self, account: TimeSums, passes: int, rows: int | None) -> int:
        """Move the batches of a step with so many ``passes`` to its ``account``; return how many these are.

        Where nothing is usual yet, as behind a loop that begins with `continue`, the ``rows`` that went forward show
        it. A script that has steps without any request keeps batches, and drops none.
        """
        taken, self.taken, self.latest, self.failed = self.taken, [], 0, False
        followed = sum(may for _, may, _ in taken)
        batches = sum(amount is not NO_BATCH and amount is not None for amount, _, _ in taken)
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
        for amount, may, _ in taken:
            if (may or (first and amount is not None)) and extra > 0:
                extra -= 1
            else:
                account.add_batch(amount)
        return batches


def _samples(taken: list[tuple[BatchAmount | None, bool, int]]) -> int:
    return sum(amount.samples or 0 for amount, _, _ in taken if amount is not None)


def _fits(rows: int | None, taken: list[tuple[BatchAmount | None, bool, int]], extra: int) -> bool:
    """Return whether the ``rows`` that went forward, if they are known, may be of the batches without ``extra``."""
    all_samples = _samples(taken)
    kept = all_samples - _samples([each for each in taken if each[1]][:extra])
    return rows is None or not kept or (rows != all_samples and rows % kept == 0)


def is_followed(requests: list[LoaderRequest], index: int, asked: set[int]) -> bool:
    """Return whether behind the one at ``index`` the same loader brought a batch, or any began.

    Of two loaders of the same data the iterators tell which is which, where both were ``asked`` before. `zip` asks the
    first of its loaders once more when the second has ended; those of the next epoch may be others.
    """
    request, later = requests[index], requests[index + 1 :]
    told = request.iterator in asked
    return any(
        each.region == "loader_start"
        or (each.delivered and each.source == request.source and (not told or each.iterator == request.iterator))
        for each in later
    )
