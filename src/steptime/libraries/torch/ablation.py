"""A step in torch with stages taken away: the forward pass is the session's, what follows it is the strategy's."""

import itertools
from typing import Any, Callable, Dict, List, Optional, Tuple

from steptime.worker.session import AblatedStep

UNSYNCHRONIZED = ("forward", "backward", "local")
"""Stages in which a worker exchanges nothing with others."""


class TorchAblation(AblatedStep):
    """The ablated step of one worker alone; strategies that exchange something override what they do differently.

    Made by ``TorchStrategy.ablate`` and handed to the session, which gives it its forward pass by ``attach``.

    ``update_marks``
        The phases whose ends are marked on a CPU: ``input`` and ``forward`` here, what follows by ``marked_update``.
    ``pieces``
        The transfers of marked steps since the last ``transfers``; None if they cannot be seen.
    """

    update_marks: Tuple[str, ...] = ("input", "forward", "backward", "update")
    pieces: Any = None

    def __init__(self, strategy: Any) -> None:
        """Take the steps of ``strategy`` apart, which has been prepared."""
        self.strategy = strategy
        self.several = strategy.context.workers > 1
        self._forward: Any = None

    def attach(self, forward: Any) -> None:
        """Take over the session's ``TorchForward``."""
        self._forward = forward

    @property
    def marks(self) -> Tuple[str, ...]:  # type: ignore[override]  # which the device decides
        # On a device, the host's clock would have to wait for what is queued there at every mark.
        return self.update_marks if self.strategy.device.torch_device.type == "cpu" else ()

    def stages(self) -> Dict[str, Callable[[], Any]]:
        forward, updates = self._forward, self.updates()
        held = next(forward.batches)
        taken = itertools.repeat(held)
        stages = {name: self._stage(name, taken, update) for name, update in updates.items()}
        if not self.strategy.compilation.records_forward_anew:
            stages["forward"] = self._stage("forward", taken, _no_update)
        stages["input"] = lambda: next(forward.batches)
        if self.strategy.device.torch_device.type == "cuda":
            copies = forward.batches.copies()
            stages["h2d"] = self._stage("h2d", copies, updates.get("exchange", updates.get("local")))
        communication = self.communication()
        if communication is not None:
            stages["communication"] = communication
        return stages

    def _stage(self, name: str, batches: Any, update: Any) -> Callable[[], None]:
        def run() -> None:
            self.enter(name)
            inputs, targets = next(batches)
            update(self._forward.loss(inputs, targets))
            self.leave(name)

        return run

    def marked_step(self, mark: Callable[..., None]) -> None:
        self.enter("marked")
        inputs, targets = next(self._forward.batches)
        mark("input")
        loss = self._forward.loss(inputs, targets)
        if "forward" in self.marks:
            mark("forward")
        self.marked_update(loss, mark)
        self.leave("marked")

    def transfers(self) -> Optional[List[List[Any]]]:
        if self.pieces is None:
            return None
        seen, self.pieces = self.pieces, []
        return seen

    def updates(self) -> Dict[str, Callable[[Any], Any]]:
        """Return ``{stage: function of the loss}``: the strategy's ``update`` with stages taken away."""
        updates = {"backward": self.backward, "local": self.strategy.update}
        if self.several:
            updates["exchange"] = self.strategy.update
        return updates

    def enter(self, stage: str) -> None:
        """Prepare for a step of a stage or for a ``marked`` one; ``UNSYNCHRONIZED`` ones send nothing."""

    def leave(self, stage: str) -> None:
        """Undo ``enter``, so that the session's own step finds everything as in training."""

    def backward(self, loss: Any) -> None:
        """Compute gradients, and drop them as training does."""
        loss.backward()
        self.strategy.drop_gradients()

    def communication(self) -> Optional[Callable[[], Any]]:
        """Return a function that exchanges what a step does and computes nothing; None if nothing is exchanged."""
        return None

    def marked_update(self, loss: Any, mark: Callable[..., None]) -> None:
        """Do what the strategy's ``update`` does, and call ``mark(phase)`` at the end of each phase behind forward."""
        loss.backward()
        mark("backward")
        self.apply_gradients()
        mark("update")

    def apply_gradients(self) -> None:
        """Update the weights with the gradients that are there, and drop the gradients as training does."""
        self.strategy.apply()
        self.strategy.drop_gradients()


def _no_update(_: Any) -> None:
    """Replace the update in a step that ends with its forward pass."""
