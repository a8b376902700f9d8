"""The ablated step of DeepSpeed's engine, stage by stage of ZeRO.

A hook on the collectives that the engine calls watches what it sends, and leaves it out; the engine's own timers are
read around marked steps.
"""

import time
from typing import Any, Dict, Tuple

from deepspeed.runtime.engine import EngineTimers

from steptime.libraries.torch.ablation import UNSYNCHRONIZED, TorchAblation

_COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter_tensor", "all_gather_into_tensor")
SOURCE = "DeepSpeed timers"
_PER_SECOND = 1000.0
"""DeepSpeed's timers tell milliseconds."""


class CollectiveHook(object):
    """Stands between DeepSpeed and the collectives of torch that it uses.

    ``quiet``
        Whether nothing is sent: reductions leave a worker its own values, and what would be gathered is as far as
        possible what lies there already.
    ``calls``
        What was called with since ``watch``, ``(function, positional, named)``; None while it is not watched.
    ``seen``
        Likewise ``[name, bytes, ready_s, done_s]`` of each call.
    ``at_next``
        A function that is called once, before the next collective, with the moment of that.
    """

    def __init__(self, backend):
        """Hook into DeepSpeed's ``backend``, the object through which all that it sends goes."""
        self.quiet = False
        self.calls: Any = None
        self.seen: Any = None
        self.at_next: Any = None
        self._reduced: Any = None
        for name in _COLLECTIVES:
            setattr(backend, name, self._hooked(name, getattr(backend, name)))

    def watch(self):
        """Note every call from now on."""
        self.calls, self.seen, self._reduced = [], [], []

    def clear(self):
        """Set what was reduced to zero: the calls can be repeated then without growing beyond all bounds."""
        for tensor in self._reduced:
            tensor.zero_()

    def ignore(self):
        """Note none any more."""
        self.calls = self.seen = self.at_next = self._reduced = None

    def _hooked(self, name, collective):
        gathers = name.startswith("all_gather")

        def call(*positional, **named):
            at_s = time.monotonic()
            if self.at_next is not None:
                at_next, self.at_next = self.at_next, None
                at_next(at_s)
            if self.quiet:
                if gathers:
                    _repeat(*positional, **named)
                return _Finished() if named.get("async_op") else None
            if self.calls is None:
                return collective(*positional, **named)
            self.calls.append((collective, positional, named))
            self._reduced += [] if gathers else [_whole(positional, named)]
            return self._watched(at_s, gathers, collective, positional, named)

        return call

    def _watched(self, at_s, gathers, collective, positional, named):
        whole = _whole(positional, named)
        kind = "weights" if gathers else "gradients" if whole.dim() else "norm"  # one number is the gradients' norm
        piece = ["%s %d" % (kind, len(self.seen)), whole.numel() * whole.element_size(), at_s, None]
        self.seen.append(piece)
        work = collective(*positional, **named)
        if work is None or not named.get("async_op"):
            piece[3] = time.monotonic()
            return work
        return _Watched(work, piece)


class _Finished(object):
    """The handle of what was not sent."""

    def wait(self):
        """Return at once."""

    def is_completed(self):
        return True


class _Watched(object):
    """The handle of what is under way; it is back when it has been waited for."""

    def __init__(self, work, piece):
        self._work = work
        self._piece = piece

    def wait(self):
        self._work.wait()
        self._piece[3] = self._piece[3] or time.monotonic()

    def is_completed(self):
        return self._work.is_completed()


def _whole(positional, named):
    """Return that tensor of a call which is as long as what all workers have together."""
    tensors = [named[name] for name in ("output_tensor", "input_tensor", "tensor") if name in named]
    return max(tensors or positional[:1], key=lambda tensor: tensor.numel())


def _repeat(output_tensor, input_tensor, **_):
    """Fill fresh memory with the worker's own part: anything could lie there, and slow arithmetic down.

    Weights that are gathered where they lie keep the parts that other workers sent last.
    """
    if output_tensor.untyped_storage().data_ptr() != input_tensor.untyped_storage().data_ptr():
        output_tensor.view(-1, input_tensor.numel()).copy_(input_tensor.view(1, -1))


class EngineTimerSwitch(object):
    """Switches the engine's timers on around a step.

    The setting ``wall_clock_breakdown`` would have every step timed, from the first to the last, and each printed.
    """

    def __init__(self, engine, timed):
        """Take over the timers of ``engine``.

        Args:
            engine: whose setting ``wall_clock_breakdown`` is off.
            timed: for timers, ``(name, ...)``, the phases that they cover together.
        """
        self._engine = engine
        self._timed = timed
        self._off = engine.engine_timers
        self._on = EngineTimers(enable_micro_timers=False, enable_global_timers=True)
        self._steps = 0

    def begin(self):
        """Time the step that follows."""
        self._engine.engine_timers = self._on

    def end(self):
        """Time none any more."""
        self._engine.engine_timers = self._off
        self._steps += 1

    def take_means(self):
        """Return what ``Session.native`` does."""
        steps, self._steps = self._steps, 0
        if not steps:
            return {}
        seconds = {name: self._engine.timers(name).elapsed(reset=True) / _PER_SECOND for name in self._on.global_timers}
        return {SOURCE: {phases: sum(seconds[name] for name in names) / steps for names, phases in self._timed.items()}}


class EngineAblation(TorchAblation):
    """The stages of the engine in stage 0 of ZeRO, which averages gradients when all of them are there.

    In every stage the engine does its own work, and only what it sends may be left out.
    """

    update_marks: Tuple[str, ...] = ("input", "forward", "backward", "exchange", "update")
    timed: Dict[Tuple[str, ...], str] = {
        ("fwd",): "forward",
        ("bwd_inner",): "backward",
        ("bwd_allreduce",): "comm_exposed + sync_wait",
        ("step",): "update",
    }
    """For timers of DeepSpeed's wall-clock breakdown, the phases that they cover together."""

    def __init__(self, strategy, engine, wire):
        """Take the steps of ``engine`` apart, which sends through ``wire``."""
        super(EngineAblation, self).__init__(strategy)
        self.engine = engine
        self.wire = wire
        self._whole_step = []
        self.pieces = []
        self._breakdown = EngineTimerSwitch(engine, self.timed)

    def enter(self, stage):
        self.wire.quiet = self.several and stage in UNSYNCHRONIZED
        if stage == "marked" or (stage == "exchange" and not self._whole_step):
            self.wire.watch()
        if stage == "marked":
            self._breakdown.begin()

    def leave(self, stage):
        self.wire.quiet = False
        if stage == "exchange" and not self._whole_step:
            self._whole_step = self.wire.calls
            self.wire.clear()
        if stage == "marked":
            self._breakdown.end()
            self.pieces += self.wire.seen
        self.wire.ignore()

    def backward(self, loss):
        """Compute gradients and drop them, as the engine does after an update."""
        self.engine.backward(loss)
        self.forget()

    def forget(self):
        """Drop the gradients."""
        self.engine.zero_grad()

    def communication(self):
        if not self.several:
            return None

        def communicate():
            works = [collective(*positional, **named) for collective, positional, named in self._whole_step]
            for work in works:
                if work is not None:
                    work.wait()

        return communicate

    def marked_update(self, loss, mark):
        marked = []

        def arrived(at_s=None):
            marked.append(True)
            mark("backward", at_s)

        self.wire.at_next = arrived
        self.engine.backward(loss)
        if not marked:
            arrived()
        mark("exchange")
        self.engine.step()
        mark("update")

    def native(self):
        return self._breakdown.take_means()


class ShardedStateAblation(EngineAblation):
    """The stages of the engine in stages 1 and 2 of ZeRO, which send before the update and after it."""

    update_marks: Tuple[str, ...] = ("input", "forward")
    timed = {
        ("fwd",): "forward",
        ("bwd", "step"): "backward + comm_exposed + sync_wait + update",
    }

    def forget(self):
        """Drop the gradients, those that ZeRO keeps of its own part too."""
        optimizer = self.engine.optimizer
        optimizer.zero_grad(set_to_none=True)
        optimizer.micro_step_id = -1
        for group in optimizer.averaged_gradients:
            optimizer.averaged_gradients[group] = None
            optimizer.all_grad_tensors[group] = None

    def marked_update(self, loss, _):
        self.strategy.update(loss)


class ShardedWeightsAblation(ShardedStateAblation):
    """The stages of the engine in stage 3 of ZeRO, whose forward pass gathers weights."""

    update_marks = ("input",)
    timed = {("fwd", "bwd", "step"): "forward + backward + comm_exposed + sync_wait + update"}

    def forget(self):
        """Drop the gradients, those that ZeRO keeps of its own part too."""
        self.engine.optimizer.zero_grad(set_to_none=True)
        self.engine.optimizer.averaged_gradients = {}
