"""What follows a step's forward pass, with stages taken away, for the breakdown of a step in torch."""

ALONE = ("forward", "backward", "local")
"""Rungs in which a worker exchanges nothing with others."""


class Stages(object):
    """The stages of a worker that agrees with nobody; strategies that exchange something have stages of their own.

    Made in ablation runs only, before the first step.

    ``marks``
        Phases whose ends are marked: ``input`` and ``forward`` by the session, what follows by ``marked``.
    """

    marks = ("input", "forward", "backward", "update")

    def __init__(self, strategy):
        """Take the steps of ``strategy`` apart, which has been prepared."""
        self.strategy = strategy

    def stages(self):
        """Return ``{stage: function of the loss}``: the strategy's ``update`` with stages taken away."""
        return {"backward": self.backward, "local": self.strategy.update}

    def enter(self, stage):
        """Prepare for a step of a stage or for a ``marked`` one; nothing is sent in those of ``ALONE``."""

    def leave(self, stage):
        """Prepare for the session's own step, which knows of no stages."""

    def backward(self, loss):
        """Compute gradients, and give their memory back as training does."""
        loss.backward()
        self.strategy.optimizer.zero_grad(set_to_none=True)

    def communication(self):
        """Return a function that exchanges what a step does and computes nothing; None where nothing is exchanged."""
        return

    def marked(self, loss, mark):
        """Do what the strategy's ``update`` does, and call ``mark(phase)`` at the end of each of ``marks``."""
        loss.backward()
        mark("backward")
        self.update()
        mark("update")

    def update(self):
        """Update the weights with the gradients that are there, and give these back."""
        self.strategy.optimizer.step()
        self.strategy.optimizer.zero_grad(set_to_none=True)

    def transfers(self):
        """Return what ``Session.transfers`` does."""
        return

    def native(self):
        """Return what ``Session.native`` does."""
        return {}
