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
from .step_lines import AT_ONCE, MOST_TOGETHER, TOGETHER_NS
from .step_passes import reference_to

if TYPE_CHECKING:
    from .batch_amount import AskedSizes, BatchReader
    from .optimizer_numbers import OptimizerNumbers
    from .patches import After, Before

INPUT, FORWARD, BACKWARD, CLIP, UPDATE = "input", "forward", "backward", "clip", "update"
ENDS = {name: name + " ends" for name in (INPUT, FORWARD, BACKWARD, CLIP, UPDATE)}
INPUT_ENDS, FORWARD_ENDS, BACKWARD_ENDS = ENDS[INPUT], ENDS[FORWARD], ENDS[BACKWARD]
GRADIENTS = "gradients"  # behind the time of the last gradient is that of the end of its backward pass
# Steps that must be alike, and so many times as many behind each step that then was not, up to a limit.
ALIKE, LONGER, LONGEST = 3, 2, 192
# Keys of a step's line that one like it has with the same value, and those that each has anew.
SAME = ("kind", "micro_steps", "requests", "rows", "samples", "asked", "tokens", "optimizers")
OWN = frozenset({"number", "begin_ns", "duration_ns", "regions", "gaps", "backwards", "cost_ns"})
# What does not change while only times are noted.
_QUIET = {"usual", "file", "thread", "sampler", "device", "lines", "at_step", "elsewhere", "last_gradient"}
_QUIET |= {"__class__", "__dict__"}


class StepForm:
    """The regions of a step in their order, and what else its line has."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.constant = {key: line[key] for key in SAME if key in line}
        self.synchronised = [each[3] for each in line["backwards"]]
        clip = [CLIP] if CLIP in line["regions"] else []
        names = [*[INPUT, FORWARD, BACKWARD] * len(self.synchronised), *clip, UPDATE]
        self.regions: list[tuple[str, int, int]] = []  # with the places of its begin and end among the times
        self.codes: list[str] = []
        self.places: list[str] = []  # the region or gap in which each of the times is next
        self.owes: list[bool] = []  # whether there are gradients then that no update has used
        before, owing = UPDATE, False
        for name in names:
            entries = [name, ENDS[name], *[GRADIENTS] * (name == BACKWARD)]
            self.regions.append((name, len(self.codes), len(self.codes) + len(entries) - 1))
            self.codes += entries
            self.places += [f"{before}>{name}", *[name] * (len(entries) - 1)]
            self.owes += [owing] * len(entries)
            before, owing = name, owing or name == BACKWARD
        self.length = len(self.codes)
        self.gaps = [
            (f"{name}>{after}", end, begin)
            for (name, _, end), (after, begin, _) in zip(self.regions, [*self.regions[1:], (INPUT, self.length, 0)])
        ]
        self.codes += [INPUT, INPUT_ENDS, FORWARD]
        self.places += [f"{UPDATE}>{INPUT}", INPUT, f"{INPUT}>{FORWARD}"]
        self.owes += [False] * 3

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepForm):
            return NotImplemented
        return (self.codes, self.synchronised, self.constant) == (other.codes, other.synchronised, other.constant)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, line: dict[str, Any]) -> StepForm | None:
        """Return the form of a step, or None of one that is not of a few regions in their usual order."""
        if not line.keys() <= OWN.union(SAME) or len(line.get("optimizers", ())) != 1 or not line.get("backwards"):
            return None
        passes = len(line["backwards"])
        if line["micro_steps"] != passes or line.get("requests", 1) != passes or (passes > 1 and "rows" in line):
            return None
        form = cls(line)
        complete = line["regions"].keys() == {name for name, _, _ in form.regions}
        return form if complete and line["gaps"].keys() == {name for name, _, _ in form.gaps} else None


class UsualStep:
    """A step of a form: its number and its times, behind which are those with which the next begins."""

    __slots__ = ("form", "number", "times")

    def __init__(self, form: StepForm, number: int, times: list[int]) -> None:
        self.form, self.number, self.times = form, number, times

    def line(self) -> dict[str, Any]:
        """Return its line."""
        form, times = self.form, self.times
        sums: list[dict[str, int]] = [{}, {}]
        for into, entries in zip(sums, (form.regions, form.gaps)):
            for name, begin, end in entries:
                into[name] = into.get(name, 0) + times[end] - times[begin]
        passes = [(begin, end) for name, begin, end in form.regions if name == BACKWARD]
        return {
            **form.constant,
            "number": self.number,
            "begin_ns": times[0],
            "duration_ns": times[form.length] - times[0],
            "regions": sums[0],
            "gaps": sums[1],
            "backwards": [
                [times[begin], times[end - 1], times[end], synchronised]
                for (begin, end), synchronised in zip(passes, form.synchronised)
            ],
        }


class LeftGradients(Protocol):
    """Knows whether the latest backward pass has left gradients for an update."""

    left: bool

    def is_left(self) -> bool:
        """Return whether they are there still."""
        ...


class _Rows:
    """In place of an array that went forward."""

    def __init__(self, rows: int) -> None:
        self.shape = (rows,)


class UsualSteps:
    """What is known of the steps of a loop that are alike; off until some were."""

    def __init__(self, recorder: Recorder, reader: BatchReader, sizes: AskedSizes, unused: LeftGradients) -> None:
        self.recorder, self.reader, self.sizes, self.unused = recorder, reader, sizes, unused
        recorder.usual = self
        self.form: StepForm | None = None
        self.seen: Any = None  # the latest line that was looked at
        self.alike, self.needed = 0, ALIKE
        self.batch: Any = None
        self.updates: dict[int, weakref.ref[Any]] = {}
        self.source: int | None = None
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

        def begin(args: Any, kwargs: Any) -> Any:
            if self.on and source(args[0]) == self.source and self.begin(INPUT):
                return CallMark(self, args[0])
            return before(args, kwargs)

        def end(mark: Any, returned: bool) -> None:
            if mark.given[0] is self:
                if returned and self.request_ends(mark.result, mark.given[1]):
                    return
                self.settle()
                mark.given = self.source, mark.given[1]
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

    def updates_by(self, optimizer: Any) -> bool:
        """Return whether an update by ``optimizer`` may be the next: not by one at the address of one that is gone."""
        known = self.updates.get(id(optimizer))
        return known is not None and known() is optimizer

    def update_ends(self) -> bool:
        """Note that the update ends; return whether it is the next."""
        return self.codes[len(self.times)] == ENDS[UPDATE] and self.end(UPDATE)

    def request_ends(self, batch: Any, loader: Any) -> bool:
        """Note that ``loader`` gave a ``batch``, if it is like those before it."""
        times = self.times
        if (
            self.codes[len(times)] == INPUT_ENDS
            and self.reader.form_of(batch) == self.batch
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
        lines, self.number = self.recorder.lines, self.number + 1
        lines.waiting.append(UsualStep(self.form, self.number - 1, times))  # type: ignore[arg-type]
        if begin >= lines.due or len(lines.waiting) >= MOST_TOGETHER or not self.number & (self.number - 1):
            self._write(begin)
        return True

    def _write(self, begin: int) -> None:
        """Do what is due at the ends of some steps."""
        recorder, number = self.recorder, self.number
        lines, sampler = recorder.lines, recorder.sampler
        lines.write()
        lines.due = begin + TOGETHER_NS
        if sampler is not None:
            sampler.step_closed(number, 0, 0)
        call_all(recorder.at_step, number)

    def backward_ends(self, last: int, synchronised: bool | None) -> bool:
        """Note that a backward pass ends whose ``last`` gradient was ready at a time."""
        times = self.times
        at = len(times)
        if self.codes[at] == BACKWARD_ENDS and self.unused.is_left() and self._averages(at, synchronised):
            times.extend((last, now()))
            return True
        self.settle()
        return False

    def _averages(self, at: int, synchronised: bool | None) -> bool:
        form = self.form
        return form is not None and form.synchronised[self.codes[:at].count(BACKWARD_ENDS)] is synchronised

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
            ENDS[UPDATE]: lambda: recorder.update_end(self.optimizer),
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
