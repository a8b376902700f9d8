"""The ablated step of DeepSpeed's engine, stage by stage of ZeRO, and the engine's own timers around marked steps."""

from deepspeed.runtime.engine import EngineTimers

from steptime.libraries.torch.ablation import UNSYNCHRONIZED, TorchAblation

SOURCE = "DeepSpeed timers"
_PER_SECOND = 1000.0
"""DeepSpeed's timers tell milliseconds."""


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

    update_marks = ("input", "forward", "backward", "exchange", "update")
    timed = {
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

    update_marks = ("input", "forward")
    timed = {("fwd",): "forward", ("bwd", "step"): "backward + comm_exposed + sync_wait + update"}

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
