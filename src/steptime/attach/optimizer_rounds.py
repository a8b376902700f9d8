"""Optimizers that take turns: without a loader, a step of the script is a round of their updates."""

from __future__ import annotations

# Updates that a round has at most; of more, each is a step.
LONGEST = 16
# Rounds that must be seen, one like the other, before the next counts as one step.
SEEN = 2


class OptimizerRounds:
    """Learns which optimizers come one after the other, and when a round of them is over.

    A generative network has the updates of two in each step of its script. Where none is asked for a batch, each update
    would end a step; so they do until two rounds were alike.
    """

    def __init__(self) -> None:
        self.updates: list[int] = []  # of the latest steps, which optimizer each has updated
        self.round: list[int] = []  # the optimizers of a round; empty until one is known

    def is_over(self, optimizers: list[int]) -> bool:
        """Return whether a step that has made updates by ``optimizers`` so far is over."""
        if optimizers and optimizers == self.round[: len(optimizers)]:
            return len(optimizers) == len(self.round)
        if self.round:  # they no longer take turns, or an update was skipped
            self.round, self.updates = [], []
        return True

    def step_closed(self, optimizers: list[int]) -> None:
        """Learn from the updates of a step that has ended."""
        if self.round:
            return
        self.updates += optimizers
        del self.updates[: -SEEN * LONGEST]
        for length in range(2, len(self.updates) // SEEN + 1):
            latest = self.updates[-length:]
            if len(set(latest)) > 1 and self.updates[-SEEN * length : -length] == latest:
                self.round = latest
                return
