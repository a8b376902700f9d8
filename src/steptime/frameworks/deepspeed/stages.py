"""The steps of DeepSpeed's engine in stages."""

from steptime.frameworks.deepspeed.breakdown import Breakdown
from steptime.worker.sessions.torch_stages import ALONE, Stages


class EngineStages(Stages):
    """The stages of the engine in stage 0 of ZeRO, which averages gradients when all of them are there.

    In every rung the engine does its own work, and only what it sends may be left out.
    """

    marks = ("input", "forward", "backward", "exchange", "update")
    timed = {
        ("fwd",): "forward",
        ("bwd_inner",): "backward",
        ("bwd_allreduce",): "comm_exposed + sync_wait",
        ("step",): "update",
    }
    """For timers of DeepSpeed's wall-clock breakdown, the phases that they cover together."""

    def __init__(self, strategy, engine, wire):
        """Take the steps of ``engine`` apart, which sends through ``wire``."""
        super(EngineStages, self).__init__(strategy)
        self.engine = engine
        self.wire = wire
        self._several = strategy.place.workers > 1
        self._whole_step = []
        self._transfers = []
        self._breakdown = Breakdown(engine, self.timed)
        if strategy.device.backend != "gloo":
            self.marks = ()  # the host's clock says nothing of what a device has queued

    def rungs(self):
        rungs = super(EngineStages, self).rungs()
        if self._several:
            rungs["exchange"] = self.strategy.update
        return rungs

    def enter(self, rung):
        self.wire.quiet = self._several and rung in ALONE
        if rung == "marked" or (rung == "exchange" and not self._whole_step):
            self.wire.watch()
        if rung == "marked":
            self._breakdown.begin()

    def leave(self, rung):
        self.wire.quiet = False
        if rung == "exchange" and not self._whole_step:
            self._whole_step = self.wire.calls
            self.wire.clear()
        if rung == "marked":
            self._breakdown.end()
            self._transfers += self.wire.seen
        self.wire.ignore()

    def backward(self, loss):
        """Compute gradients and drop them, as the engine does after an update."""
        self.engine.backward(loss)
        self.forget()

    def forget(self):
        """Drop the gradients."""
        self.engine.zero_grad()

    def communication(self):
        if not self._several:
            return None

        def communicate():
            works = [collective(*positional, **named) for collective, positional, named in self._whole_step]
            for work in works:
                if work is not None:
                    work.wait()

        return communicate

    def marked(self, loss, mark):
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

    def transfers(self):
        seen, self._transfers = self._transfers, []
        return seen

    def native(self):
        return self._breakdown.told()


class SplitStages(EngineStages):
    """The stages of the engine in stages 1 and 2 of ZeRO, which send before the update and after it."""

    marks = ("input", "forward")
    timed = {("fwd",): "forward", ("bwd", "step"): "backward + comm_exposed + sync_wait + update"}

    def forget(self):
        """Drop the gradients, those that ZeRO keeps of its own part too."""
        optimizer = self.engine.optimizer
        optimizer.zero_grad(set_to_none=True)
        optimizer.micro_step_id = -1
        for group in optimizer.averaged_gradients:
            optimizer.averaged_gradients[group] = None
            optimizer.all_grad_tensors[group] = None

    def marked(self, loss, _):
        self.strategy.update(loss)


class GatheringStages(SplitStages):
    """The stages of the engine in stage 3 of ZeRO, whose forward pass gathers weights."""

    marks = ("input",)
    timed = {("fwd", "bwd", "step"): "forward + backward + comm_exposed + sync_wait + update"}

    def forget(self):
        """Drop the gradients, those that ZeRO keeps of its own part too."""
        self.engine.optimizer.zero_grad(set_to_none=True)
        self.engine.optimizer.averaged_gradients = {}
