"""Regions on a stack, and the rule by which they make steps (README.md). Knows no framework."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from . import loader_requests
from .account import COLLECTIVE, EPOCH, GAP, REGION, Ledger
from .garbage import Collections
from .loader_requests import LoaderRequest, TrainingSources
from .optimizer_rounds import ClosureCode, OptimizerRounds
from .patches import call_all
from .reading_threads import RequestsElsewhere
from .record_file import ProcessorUse, now
from .step_lines import StepLines
from .step_passes import StepPasses

if TYPE_CHECKING:
    from .batch_amount import BatchAmount
    from .record_file import ProcessRecord

PENDING = 4096
# Backward passes without any update, behind which it is thought to be in compiled code, and where nothing was compiled.
BLIND_AFTER, BLIND_ANYWAY = 8, 512


class Recorder:
    """What happens in the thread that trains."""

    def __init__(self, file: ProcessRecord) -> None:
        self.file, self.clock = file, now
        unset: Any = None
        self.sampler = self.device = self.usual = unset
        # Called when a step was closed, with the number of the next; after a backward pass; and at the end.
        self.at_step: list[Callable[..., None]] = []
        self.at_backward: list[Callable[..., None]] = []
        self.at_end: list[Callable[..., None]] = []
        # Whether the script has no optimizer and updates by itself; whether somebody follows each step.
        self.by_hand = self.each_step = False
        self.compiles: Callable[[], bool] = lambda: True  # whether an update may lie in compiled code
        self.sights: dict[str, int] = {}  # what a process did that may never train
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all that was recorded: a forked child records its own."""
        self.thread = threading.get_ident()
        self.processor = ProcessorUse()
        self.stack: list[list[Any]] = []  # name, begin, time of regions inside
        self.before, self.before_end = "start", now()
        self.ledger, self.collections, self.batches = Ledger(), Collections(), loader_requests.StepBatches()
        self.lines = StepLines(self.file)
        self.begin: int | None = None
        self.number = self.micro_steps = self.forwards = self.cost = self.saves = 0
        self.backwards: list[list[Any]] = []
        self.optimizers: list[int] = []
        self.rounds, self.closure, self.passes = OptimizerRounds(), ClosureCode(), StepPasses()
        self.flags: set[str] = set()
        self.stepped = self.blind = self.between = self.ended = self.elsewhere = False  # last: collectives of a thread
        self.update_end_ns = self.last_gradient = self.moved = 0  # the last: bytes of collectives since the first step
        self.pending: list[LoaderRequest] = []
        self.sources, self.elsewhere_requests = TrainingSources(), RequestsElsewhere()
        self.reads, self.untrained = loader_requests.EvaluatedReads(), loader_requests.UntrainedBatches()
        self.calls: set[str] = set()
        self.world: tuple[int, int, str] | None = None
        if self.sampler is not None:
            self.sampler.begin_again()
        if self.device is not None:
            self.device.begin_again()

    def is_mine(self) -> bool:
        """Return whether the calling thread is the one that is recorded."""
        return threading.get_ident() == self.thread

    def adopt_thread(self, at: int = 0) -> bool:
        """Record the calling thread, ``at`` or from now on, if no step has begun in another; return whether it is."""
        if threading.get_ident() != self.thread and self.begin is None:
            self.thread = threading.get_ident()
            del self.stack[:], self.pending[:]
            self.before, self.before_end = "start", at or now()
        return threading.get_ident() == self.thread

    def inside(self, *names: str) -> bool:
        """Return whether a region of one of ``names`` is going on."""
        for region in self.stack:  # a loop, since `any` costs a microsecond  # noqa: SIM110
            if region[0] in names:
                return True
        return False

    # Regions

    def enter(self, name: str) -> int:
        """Begin a region; return when."""
        begin = self.clock()
        if not self.stack:
            self._end_gap(name, begin)
        elif self.stack[-1][0] == "update":
            self.closure.end(self, name, begin)
        self.stack.append([name, begin, 0])
        if self.device is not None:
            self.device.enter(name)
        return begin

    def leave(self, name: str, known_as: str = "") -> tuple[int, int, int] | None:
        """End a region, ``known_as`` what it was; return its begin, end and exclusive time, None behind a fault."""
        timed = self._pop(name)
        if timed is not None:
            self.ledger.add((timed[0], REGION, known_as or name, timed[2]))
        return timed

    def _pop(self, name: str) -> tuple[int, int, int] | None:
        if not self.inside(name):
            return None
        if self.device is not None:
            self.device.leave(name)
        end = self.clock()
        while True:
            found, begin, inside = self.stack.pop()
            if found == name:
                break
        inside += self.collections.take(begin, self.ledger, last=not self.stack)
        if self.stack:
            self.stack[-1][2] += end - begin
            if self.stack[-1][0] == "update":
                self.closure.passed(self, name, end)
        else:
            self.before, self.before_end = name, end
        return begin, end, end - begin - inside

    def _end_gap(self, name: str, begin: int) -> None:
        gap = self.before + ">" + name
        collected = self.collections.take(self.before_end, self.ledger, last=True)
        self.ledger.add((self.before_end, GAP, gap, begin - self.before_end - collected))
        if self.sampler is not None and self.sampler.samples:
            self.sampler.assign(gap)

    # Requests to loaders

    def request_begin(self) -> None:
        """Begin a request to a loader."""
        if self._awaits_backward() and not self.stack:
            self.ledger.waits = True  # whether what was before is trained on is known later
        self.enter("input")

    def request_end(self, source: int, region: str, amount: BatchAmount | None = None, iterator: int = 0) -> None:
        """End it; ``region`` is `input`, `epoch` where no batch came, or `loader_start`; ``amount`` is in the batch."""
        timed = self._pop("input")
        if timed is None:
            return
        if self.stack:
            self.ledger.add((timed[0], REGION, region, timed[2]))
            return
        self.pending.append(LoaderRequest(source, timed, region, amount, iterator))
        self.pending[-1].seen = self.sampler.lines_of_request() if self.sampler is not None else None
        self.ledger.waits = self.ledger.waits or self.stepped or (region == "epoch" and self.micro_steps > 0)
        if len(self.pending) > PENDING:
            for request in self.pending[: PENDING // 2]:
                request.settle(self.ledger, apart=self.stepped)
            del self.pending[: PENDING // 2]

    def _use(self, begin: int, *, forward: bool = True, array: Any = None) -> None:
        """Settle the requests since the last forward, since one of ``array`` that trains begins now: a step may end."""
        if delivered := [request for request in self.pending if request.delivered]:
            if forward:
                self.untrained.look_back(self)
            self.sources.use(delivered, self.pending, first=self.ledger.after is None)
        mine = self.sources.of(self.pending)
        self.sources.settle_others(self.pending, self.ledger)
        mine = self.reads.set_apart(mine, self, array)
        first = mine[0].begin if mine else None
        if delivered and self.micro_steps and self._is_blind():
            self.flags.add("blind")
            self.stepped = True
        ended = any(request.region == "epoch" for request in mine)  # behind it is the last batch of who asks ahead
        same = self.by_hand and self.forwards > 0 and not (forward or delivered)
        alone = self.stepped and self.sources.latest is None and self.rounds.is_over(self.optimizers)
        if self.stepped and not same and (delivered or ended or alone):
            self.close(first if first is not None else self._end_of_update(begin, forward=forward))
        elif self.ledger.waits and self.begin is not None:
            self.passes.go_on(self, forward=forward)
        if self.begin is None:
            self._begin_first(first if first is not None else (self.update_end_ns or begin))
        self.batches.take(mine, self.ledger)
        del self.pending[:]

    def _awaits_backward(self) -> bool:
        """Return whether the step has forward passes with gradient so far, and no backward pass."""
        return self.forwards > 0 and not (self.micro_steps or self.stepped or self.calls)

    def _end_of_update(self, begin: int, *, forward: bool) -> int:
        """Return when the update was over: one by hand is the gap before the ``forward`` that now begins."""
        if self.by_hand and forward:
            self._end_gap("forward", begin)
            self.update_end_ns = self.before_end = begin
        return self.update_end_ns

    def _is_blind(self) -> bool:
        if not self.blind and self.number == 0 and self.micro_steps >= BLIND_AFTER and not self.optimizers:
            self.blind = not self.stepped and (self.compiles() or self.micro_steps >= BLIND_ANYWAY)
        return self.blind

    def _begin_first(self, begin: int) -> None:
        self.begin, self.collections.count, self.collections.longest = begin, 0, 0
        self.before_end = max(self.before_end, begin)  # what was before belongs to no step
        self.lines.add_outside(*self.ledger.begin_first(begin), before=True)

    # Forward and backward

    def forward_begin(self, *, training: bool, trainable: bool = True, array: Any = None) -> str:
        """Begin an outermost module's forward of ``array``; return its region. A loss belongs to what was before."""
        if not trainable:
            training = training and not self.between
        # Lightning and L-BFGS run forward and backward inside of the optimizer's step.
        elif all(region[0] == "update" for region in self.stack):
            if training:
                self.elsewhere_requests.set_evaluation_apart(self)
            if training and self.sources.is_evaluated(self.pending):
                training = False
                self.flags.add("evaluated")
            own = not training and (self.sources.read(self.pending, array) or self.passes.has_trained(self, array))
            if training:
                self._use(self.clock(), array=array)
                self.passes.forward(self.micro_steps, array)
                self.forwards += 1
            elif not own and self.sources.latest is not None:
                self.set_apart()
            self.between = not (training or own) and self._is_between()
        name = "forward" if training else "nograd"
        self.sights[name] = self.sights.get(name, 0) + 1
        self.enter(name)
        return name

    def set_apart(self) -> None:
        """Set requests to other loaders apart, but for the beginning of those whose batches a graph takes itself."""
        self.passes.read_behind = self.batches.group if self.forwards else 0
        others = self.sources.others(self.pending)
        giving = {request.source for request in others if request.delivered}
        evaluates = self.passes.halt(self, others) or self.stepped
        for request in others:
            began = request.region == "loader_start" and not (request.read_until or request.source in giving)
            if evaluates and not began:
                self.sources.evaluation.add(request.source)
            request.settle(self.ledger, apart=self.ledger.waits and not began)
            self.pending.remove(request)

    def forward_end(self, name: str) -> None:
        """End it."""
        timed = self.leave(name)
        if timed is None or name != "nograd" or self.stack:
            return
        if self.between and not self.sources.undecided:
            self.ledger.extend_apart(timed[0], timed[1])
        if self.pending:
            self.pending[-1].read_until = timed[1]

    def backward_begin(self) -> None:
        """Begin a backward pass; one without a forward before it is a step's own as well."""
        self.last_gradient = 0
        self.sources.teach()
        self.untrained.trains, self.batches.trained = True, self.batches.group
        if not self.stack:
            if self.pending or self.stepped or self.ledger.waits or self.begin is None:
                self._use(self.clock(), forward=False)
        elif self.begin is None:
            self._begin_first(self.stack[0][1])
        self.enter("backward")

    def backward_end(self, *, synchronised: bool | None) -> None:
        """End it; ``synchronised`` is whether gradients were averaged in it, None if that is not known."""
        timed = self.leave("backward")
        if timed is not None:
            self.micro_steps += 1
            if self.stepped and self.update_end_ns > timed[0]:  # optimizers may step inside of the pass
                self.update_end_ns = timed[1]
                self.passes.updated(self)
            self.backwards.append([timed[0], self.last_gradient, timed[1], synchronised])
            if self.by_hand:
                self.updated(timed[1])
            call_all(self.at_backward)

    # Updates, and whole steps in one call

    def update_begin(self, *, closure_first: bool = False) -> None:
        """Begin an update of parameters, of which nothing is ahead of its closure if that comes first."""
        if self.begin is None:
            self._use(self.stack[0][1] if self.stack else now())
        self.enter("update")
        self.closure.begin(self, first=closure_first)

    def update_end(self, optimizer: int | None = None, *, counts: bool = True) -> None:
        """End it; an engine's step that may have been none does not count, the optimizer's inside of it does."""
        timed = self.leave("update")
        if timed is not None and counts:
            self.by_hand = False
            self.passes.update_ends(self, optimizer)
            if optimizer is not None:
                self.optimizers.append(optimizer)
            self.updated(timed[1])

    def updated(self, at: int) -> None:
        """Note that the parameters were updated: the next request by the training source begins a step."""
        self.stepped, self.update_end_ns = True, at
        self.passes.updated(self)
        self.ledger.waits = True

    def call_begin(self, name: str = "step", *, again: bool = False) -> None:
        """Begin a call that is a whole step, or ``name`` of its functions; ``again`` if nothing was updated since."""
        self.stepped = self.stepped and not again
        self._call(name, now(), again=again)
        self.enter("call")

    def call_end(self, region: str = "call", *, counts: bool = True) -> tuple[int, int, int] | None:
        """End ``region``, a call or `compile`, which ``counts`` as a micro-step; return begin, end, exclusive time."""
        timed = self._pop("call")
        if timed is not None:
            self.ledger.add((timed[0], REGION, region, timed[2]))
            self._called(timed[1], counts=counts)
        return timed

    def first_call(self, name: str, begin: int, end: int, *, counts: bool = True) -> None:
        """Note that what was recorded as `compile` was a call of a step: what a function is shows in its result."""
        self._call(name, begin)
        self._called(end, counts=counts)

    def first_forward(self, begin: int, end: int) -> None:
        """Note that what was recorded as `compile` was a forward without gradient between steps."""
        if not self.stack and self.sources.latest is not None:
            self.set_apart()
        self.between = self._is_between()
        if self.between:
            self.ledger.extend_apart(begin, end)

    def _is_between(self) -> bool:
        """Return whether no step goes on: behind an update, unless a further pass of its round has begun."""
        return self.ledger.waits and (self.begin is None or self.stepped or bool(self.calls) or self.passes.halted)

    def _call(self, name: str, begin: int, *, again: bool = False) -> None:
        if name in self.calls and not again:
            self.updated(self.update_end_ns)
        self._use(begin)
        self.calls.add(name)
        self.between = False

    def _called(self, end: int, *, counts: bool = True) -> None:
        self.micro_steps += counts
        self.update_end_ns = end
        # Without a loader the next call shows whether the step is over; until then evaluation may follow.
        self.ledger.waits = True
        if self.sources.latest is not None:
            self.updated(end)

    def leave_between(self, name: str) -> None:
        """End a wait for the device, or a call for gradients; behind a forward of no training it is a part of that."""
        timed = self.leave(name)
        if timed is not None and self.between and not (self.stack or self.sources.undecided):
            self.ledger.extend_apart(timed[0], timed[1])

    def replay_begin(self, graph: int) -> None:
        """Begin the replay of captured work outside of any region, which is the call of a whole step."""
        self._call(f"replay of {graph}", now())
        self.enter("replay")

    def replay_end(self) -> None:
        """End it."""
        timed = self.leave("replay")
        if timed is not None:
            self._called(timed[1])

    def collective(self, kind: str, size: int, begin: int, end: int) -> None:
        """Note a collective of ``size`` bytes that was asked for, or waited for, from ``begin`` to ``end``."""
        around = next((region[0] for region in reversed(self.stack) if region[0] not in {"collective", "wait"}), "none")
        self.ledger.add((begin, COLLECTIVE, around + ":" + kind, end - begin, kind, size))
        self.moved += size if self.begin is not None else 0

    # Lines

    def close(self, boundary: int) -> None:
        """End the step at ``boundary`` and write its line; the next begins there."""
        cost_begin = now()
        account, apart = self.ledger.divide(boundary)
        requests = self.batches.end_step(account, max(self.forwards, self.micro_steps), self.passes.known_rows())
        if self.begin is not None:
            self.elsewhere_requests.take(account, self)
            if self.sources.latest is None:
                self.flags.add("no_loader")
            self.rounds.step_closed(self.optimizers)
            line: dict[str, Any] = {
                "kind": "step",
                "number": self.number,
                "begin_ns": self.begin,
                "duration_ns": boundary - self.begin,
                **self.passes.form(self, requests, account.amount),
                **account.form(self.number),
            }
            if apart is not None:
                line["apart"] = apart.form()
            further = [("backwards", self.backwards), ("optimizers", self.optimizers), ("flags", sorted(self.flags))]
            further.append(("collections", self.collections.end_step()))
            line.update([each for each in further if each[1]])
            line["cost_ns"] = self.cost
            self.lines.add(line)
            if self.sampler is not None:
                aside = apart.end - apart.begin if apart is not None else 0
                self.sampler.step_closed(self.number + 1, line["duration_ns"] - aside, account.in_unmarked_code())
        self.number += 1
        self.begin = boundary
        self.micro_steps = self.forwards = 0
        self.backwards, self.optimizers, self.flags, self.passes = [], [], set(), StepPasses()
        self.untrained.end_step()
        self.stepped = False
        self.calls = set()
        call_all(self.at_step, self.number)
        self.cost = now() - cost_begin

    def rank(self, rank: int, world: int, by: str, setup_ns: int | None = None) -> None:
        """Note which of how many processes this one is."""
        if self.world == (rank, world, by):
            return
        self.world = (rank, world, by)
        line = {"kind": "rank", "rank": rank, "world": world, "by": by, "setup_ns": setup_ns}
        self.file.write({key: value for key, value in line.items() if value is not None}, opens=False)

    def faulted(self) -> None:
        """Forget the regions that go on, since the end of one may never come, and mark the step."""
        del self.stack[:]
        self.before, self.before_end = "fault", now()
        self.flags.add("fault")

    def end(self) -> None:
        """Write the last lines, once; a process that never trained writes none."""
        if self.ended:
            return
        self.ended = True
        if self.sampler is not None:
            self.sampler.stop()
        if self.begin is None:
            return
        for request in self.reads.last(self.pending):
            self.ledger.extend_apart(request.begin, request.read_until)
            self.ledger.add((request.begin, REGION, request.region, request.duration))
        if self.stepped or self.calls - {EPOCH}:
            self.close(self.update_end_ns)
        elif self.untrained.evaluates:
            self.ledger.set_apart(self.begin, now())
        self.lines.flush()
        self.lines.add_outside(*self.ledger.divide(now()), before=False)
        call_all(self.at_end)
        line = {"kind": "end", "steps": self.number, "at_ns": now(), "lost": self.file.lost}
        self.file.write({**line, "moved": self.moved, **self.processor.to_line()})
