"""Steps like those before them, of which only times are noted: the rule for steps runs again where one differs.

What the rule costs is most of all code that a pause has pushed out of the caches. Behind steps that were alike, the
hooks of torch ask here first whether what happens is what comes next in such a step. As long as it is, a time is kept,
and a whole step is a list of times. Whatever else looks at the recorder finds it as if the rule had run all along: it
is told what happened since, with the times of then.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Protocol

from .account import TimeSums
from .batch_amount import BatchAmount
from .patches import CallMark, call_all
from .record_file import now
from .recorder import Recorder
from .step_form import (
    BACKWARD,
    BACKWARD_ENDS,
    CLIP,
    ENDS,
    FORWARD,
    FORWARD_ENDS,
    GRADIENTS,
    INPUT,
    INPUT_ENDS,
    UPDATE,
    UPDATE_ENDS,
    StepForm,
    UsualStep,
)
from .step_lines import AT_ONCE, MOST_TOGETHER
from .step_passes import reference_to

if TYPE_CHECKING:
    from .batch_amount import AskedSizes, BatchReader
    from .optimizer_numbers import OptimizerNumbers
    from .patches import After, Before

# Steps that must be alike, and so many times as many behind each step that then was not, up to a limit.
ALIKE, LONGER, LONGEST = 3, 2, 192
# What does not change while only times are noted.
_QUIET = {"usual", "file", "thread", "sampler", "device", "lines", "at_step", "elsewhere", "last_gradient"}
_QUIET |= {"__class__", "__dict__"}


class LeftGradients(Protocol):
    """Knows whether the latest backward pass has left gradients for an update."""

    left: bool

    def is_left(self) -> bool:
        """Return whether they are there still."""
        ...


def _gone() -> None:
    """Return nothing, as a reference to what is gone does."""


class _Rows:
    """In place of an array that went forward."""

    def __init__(self, rows: int) -> None:
        self.shape = (rows,)


class UsualSteps:
    """What is known of the steps of a loop that are alike; off until some were."""

    def __init__(self, recorder: Recorder, reader: BatchReader, sizes: AskedSizes, unused: LeftGradients) -> None:
        self.recorder, self.reader, self.sizes, self.unused = recorder, reader, sizes, unused
        recorder.usual = self
        self.state = vars(recorder)  # quicker to read than through what hears of each reading
        self.form: StepForm | None = None
        self.seen: Any = None  # the latest line that was looked at
        self.alike, self.needed = 0, ALIKE
        self.batch: Any = None
        self.updates: dict[int, weakref.ref[Any]] = {}
        self.source: int | None = None
        self.loader: Callable[[], Any] = _gone  # refers to what was asked for the latest batch
        self.size: int | None = None
        self.amount = BatchAmount()
        self.closure_first = True
        self.array: Any = None  # refers to what went forward latest
        self.thread = self.first = self.number = self.optimizer = self.iterator = 0
        self._off()

    def _off(self) -> None:
        self.codes: list[str] = [""]
        self.places: list[str] = [""]
        self.owes = [True]
        self.times: list[int] = []
        self.on = False

    # Learning

    def begins(self, module: Any, optimizers: OptimizerNumbers, *, alone: bool) -> bool:
        """Return whether from this forward of ``module`` on only times are noted.

        ``optimizers`` are numbered; ``alone`` is whether nothing else of torch may have to be asked.
        """
        recorder = self.recorder
        line = recorder.lines.latest
        if line is None or line is self.seen or recorder.number < AT_ONCE or recorder.each_step:
            return False
        self.seen = line
        form = StepForm.of(line)
        if form is None or form != self.form:
            self.form, self.alike = form, int(form is not None)
            return False
        self.alike += 1
        if self.alike < self.needed or not alone or not self._may_begin(recorder, form):
            return False
        self._begin(recorder, form, module, optimizers)
        return True

    def _may_begin(self, recorder: Recorder, form: StepForm) -> bool:
        """Return whether the step that goes on has had a batch and begun its forward, and nothing else."""
        ledger, batches = recorder.ledger, recorder.batches
        gap = form.places[2]
        return (
            recorder.is_mine()
            and recorder.device is None
            and len(recorder.stack) == recorder.forwards == len(batches.taken) == 1
            and not (recorder.micro_steps or recorder.stepped or recorder.pending or recorder.by_hand)
            and not (recorder.flags or recorder.calls or recorder.optimizers or recorder.collections.waiting)
            and not (ledger.waits or ledger.waiting or ledger.apart or recorder.collections.count)
            and not (batches.failed or batches.keeps or batches.taken[0][1])
            and recorder.sources.latest is not None
            and list(ledger.account.regions) == [INPUT]
            and list(ledger.account.gaps) == [gap]
            and recorder.begin == recorder.stack[0][1] - ledger.account.gaps[gap] - ledger.account.regions[INPUT]
            and self.reader.form is not None
            and self.unused.left
            and not recorder.lines.ended
            and recorder.lines.thread is not None
        )

    def _begin(self, recorder: Recorder, form: StepForm, module: Any, optimizers: OptimizerNumbers) -> None:
        self.optimizer = form.constant["optimizers"][0]
        self.updates = optimizers.living(self.optimizer)
        self.module: Callable[[], Any] = weakref.ref(module)
        self.rows, self.array = recorder.passes.rows[0]
        self.source, self.iterator = recorder.sources.latest, recorder.untrained.iterator
        self.loader = _gone
        self.batch, self.size = self.reader.form, self.sizes.latest
        self.amount = recorder.batches.taken[0][0] or BatchAmount()
        self.thread = recorder.thread
        self.first = self.number = recorder.number
        begun = recorder.stack[0][1]
        self.times = [recorder.begin or 0, begun - recorder.ledger.account.gaps[form.places[2]], begun]
        self.codes, self.places, self.owes, self.on = form.codes, form.places, form.owes, True
        recorder.__class__ = RecorderOfUsualSteps

    # What the hooks ask

    def hook_region(self, region: str, before: Before, after: After) -> tuple[Before, After]:
        """Return hooks around a ``region`` that call these where it is not the next of a usual step."""

        def begin(args: Any, kwargs: Any) -> Any:
            return self if self.on and self.begin(region) else before(args, kwargs)

        def end(mark: Any, returned: bool) -> None:
            if mark is not self or not self.end(region):
                after(mark, returned)

        return begin, end

    def hook_requests(self, source: Callable[[Any], int], before: Before, after: After) -> tuple[Before, After]:
        """Return hooks around the requests to a loader, which ``source`` finds, likewise."""
        ours = CallMark(self)  # one is enough: no request of a usual step is inside of another

        def begin(args: Any, kwargs: Any) -> Any:
            if self.on:
                loader = args[0]
                known = self.loader() is loader
                if (known or source(loader) == self.source) and self.begin(INPUT):
                    if not known:
                        self.loader = weakref.ref(loader)
                    return ours
            return before(args, kwargs)

        def end(mark: Any, returned: bool) -> None:
            if mark is ours:
                batch, ours.result = ours.result, None
                loader = self.loader()
                if returned and self.request_ends(batch, loader):
                    return
                self.settle()
                mark = CallMark(self.source, loader)
                mark.result = batch
            after(mark, returned)

        return begin, end

    def begin(self, name: str) -> bool:
        """Note that a region begins, if it is the next; return whether it is."""
        times = self.times
        if self.codes[len(times)] != name or get_ident() != self.thread:
            return False
        times.append(now())
        return True

    def end(self, name: str) -> bool:
        """Note that it ends; return False where only the rule knows what to do."""
        times = self.times
        if self.codes[len(times)] == ENDS[name]:
            times.append(now())
            return True
        self.settle()
        return False

    def place(self) -> str:
        """Return in which region or gap the training thread is, or "" if more than times are noted; from any thread."""
        places, at = self.places, len(self.times)
        return places[at] if at < len(places) else ""

    def update_begins(self, optimizer: Any) -> bool:
        """Note that an update by ``optimizer`` begins, if it is the next: not by one at the address of one gone."""
        known = self.updates.get(id(optimizer))
        return known is not None and known() is optimizer and self.begin(UPDATE)

    def update_ends(self, optimizer: Any) -> bool:
        """Note that it ends; return whether it is the next."""
        times = self.times
        known = self.updates.get(id(optimizer))
        if known is None or known() is not optimizer or self.codes[len(times)] != UPDATE_ENDS:
            return False
        times.append(now())
        return True

    def request_ends(self, batch: Any, loader: Any) -> bool:
        """Note that ``loader`` gave a ``batch``, if it is like those before it."""
        times = self.times
        if (
            self.codes[len(times)] == INPUT_ENDS
            and self.reader.has_form(batch, self.batch)
            and self.sizes.matches(loader, self.size)
        ):
            times.append(now())
            return True
        self.settle()
        return False

    def forward_begins(self, module: Any, array: Any) -> bool:
        """Note that a forward of ``array`` begins in training, if it is the next: so the step before it is over."""
        times = self.times
        at = len(times)
        if self.codes[at] != FORWARD or module is not self.module() or get_ident() != self.thread:
            return False
        shape = getattr(array, "shape", None)
        if (shape[0] if shape else None) != self.rows or not module.training:
            return False
        self.array = None if shape is None else reference_to(array)
        begin = now()
        if at < len(self.codes) - 1:
            times.append(begin)
            return True
        self.times = [times[-2], times[-1], begin]
        lines, self.number = self.state["lines"], self.number + 1
        lines.waiting.append(UsualStep(self.form, self.number - 1, times))  # type: ignore[arg-type]
        if begin >= lines.due or len(lines.waiting) >= MOST_TOGETHER or not self.number & (self.number - 1):
            self._write(begin)
        return True

    def _write(self, begin: int) -> None:
        """Do what is due at the ends of some steps."""
        recorder, number = self.recorder, self.number
        lines, sampler = recorder.lines, recorder.sampler
        lines.write_at(begin)
        if sampler is not None:
            sampler.step_closed(number, 0, 0)
        call_all(recorder.at_step, number)

    def backward_ends(self, synchronised: bool | None) -> bool:
        """Note that a backward pass ends."""
        times = self.times
        at = len(times)
        if (
            self.codes[at] == BACKWARD_ENDS
            and self.unused.is_left()
            and self.form is not None
            and self.form.averages[at] is synchronised
        ):
            times.append(self.state["last_gradient"])
            times.append(now())
            return True
        self.settle()
        return False

    # The rule again

    def forget(self) -> None:
        """End the noting of times alone, in a process that is to record anew."""
        self.recorder.__class__ = Recorder
        self._off()
        self.form, self.alike, self.needed = None, 0, ALIKE

    def settle(self) -> None:
        """Tell the recorder what happened since: it goes on by the rule."""
        if not self.on:
            return
        recorder, form, times = self.recorder, self.form, self.times
        recorder.__class__ = Recorder
        self._off()
        self.alike, self.needed = 0, min(LONGEST, self.needed * LONGER)
        if form is None:
            return
        if self.number - self.first > self.needed:  # it was worth it
            self.needed = ALIKE
        if self.number != self.first:
            self._advance(recorder, form, times)
        try:
            self._replay(recorder, form, times)
        finally:
            recorder.clock = now

    def _advance(self, recorder: Recorder, form: StepForm, times: list[int]) -> None:
        """Move the recorder to the step that goes on, behind the begin of its first forward."""
        steps = self.number - self.first
        recorder.number, recorder.begin = self.number, times[0]
        recorder.before_end = times[1]
        recorder.stack[0][1] = times[2]
        recorder.ledger.account = TimeSums()
        recorder.ledger.account.regions = {INPUT: times[1] - times[0]}
        recorder.ledger.account.gaps = {form.places[2]: times[2] - times[1]}
        recorder.sights[FORWARD] += steps * len(form.synchronised)
        batches = recorder.batches
        batches.steps += steps
        recorder.untrained.trains = True
        for seen in batches.seen:
            seen[0] = seen.get(0, 0) + steps
        recorder.cost = 0
        if FORWARD not in form.codes[3 : len(times)]:
            recorder.passes.rows[0] = self.rows, self.array

    def _replay(self, recorder: Recorder, form: StepForm, times: list[int]) -> None:
        """Have the recorder hear of all behind its first forward, at the times of then."""
        latest = recorder.last_gradient
        acts: dict[str, Callable[[], object]] = {
            INPUT: recorder.request_begin,
            INPUT_ENDS: lambda: recorder.request_end(self.source or 0, INPUT, self.amount.copy(), self.iterator),
            FORWARD: lambda: recorder.forward_begin(training=True, array=self._array(form.codes[at + 1 : len(times)])),
            FORWARD_ENDS: lambda: recorder.forward_end(FORWARD),
            BACKWARD: recorder.backward_begin,
            GRADIENTS: lambda: recorder.backward_end(synchronised=form.synchronised[len(recorder.backwards)]),
            UPDATE: lambda: recorder.update_begin(closure_first=self.closure_first),
            UPDATE_ENDS: lambda: recorder.update_end(self.optimizer),
            CLIP: lambda: recorder.enter(CLIP),
            ENDS[CLIP]: lambda: recorder.leave(CLIP),
        }
        for at in range(3, len(times)):
            code, time = form.codes[at], times[at]
            recorder.clock = functools.partial(int, time)
            if code == BACKWARD_ENDS:
                recorder.last_gradient = time
            else:
                acts[code]()
            if code == BACKWARD and at == len(times) - 1:
                recorder.last_gradient = latest

    def _array(self, later: list[str]) -> Any:
        """Return what went forward latest; one of as many rows once it is gone, and before what came ``later``."""
        array = self.array() if self.array is not None and FORWARD not in later else None
        return array if array is not None or self.rows is None else _Rows(self.rows)


class RecorderOfUsualSteps(Recorder):
    """A recorder while only times are noted: whatever the training thread asks it, it hears first what happened."""

    def __getattribute__(self, name: str) -> Any:
        """Return the attribute ``name``."""
        if name not in _QUIET:
            usual = object.__getattribute__(self, "usual")
            if name == "begin_again":
                usual.forget()
            elif get_ident() == usual.thread:
                usual.settle()
        return object.__getattribute__(self, name)
