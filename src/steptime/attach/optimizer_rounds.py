"""Optimizers that take turns, whose round of updates is a step of the script, and those that ask a closure for it."""

from __future__ import annotations

from typing import Any

from .account import GAP

# Updates that a round has at most; of more, each is a step.
LONGEST = 16
# Rounds that must be seen, one like the other, before the next counts as one step.
SEEN = 2
# Kinds of rounds that are kept.
KINDS = 8
# What shows in the step of an optimizer that its closure is at work.
PASSES = {"forward", "nograd", "backward"}


class OptimizerRounds:
    """Learns which optimizers come one after the other, and when a round of them is over.

    A generative network has the updates of two in each step of its script. Where none is asked for a batch, each update
    would end a step; so they do until two rounds were alike.
    """

    def __init__(self) -> None:
        self.updates: list[int] = []  # of the latest steps, which optimizer each has updated
        self.round: list[int] = []  # the optimizers of a round; empty until one is known
        self.seen: set[int] = set()
        self.whole: dict[tuple[int, ...], int] = {}  # how many steps have made these updates by several
        self.again: set[tuple[int, ...]] = set()  # rounds that were made several times with one batch

    def is_over(self, optimizers: list[int]) -> bool:
        """Return whether a step that has made updates by ``optimizers`` so far is over."""
        if optimizers and optimizers == self.round[: len(optimizers)]:
            return len(optimizers) == len(self.round)
        if self.round:  # they no longer take turns, or an update was skipped
            self.round, self.updates = [], []
        return True

    def may_begin_anew(self, optimizers: list[int], *, in_hand: bool = False) -> bool:
        """Return whether a step that has made updates by ``optimizers`` may be over, though no batch was asked for.

        ``in_hand`` is whether it has no batch of its own, as where a script trains on one again and again.
        """
        updates = tuple(optimizers)
        if updates in self.again or _made_twice(optimizers, in_hand=in_hand):
            return True
        if self.round and optimizers == self.round:
            return True
        if len(self.seen.union(optimizers)) == 1:
            return True
        known = [each for each, often in self.whole.items() if often >= SEEN]
        return updates in known and all(each[: len(updates)] != updates or each == updates for each in known)

    def begins_anew(self, optimizers: list[int], optimizer: int | None, *, in_hand: bool = False) -> bool:
        """Return whether an update by ``optimizer`` is another round's than those by ``optimizers`` before it."""
        if not self.may_begin_anew(optimizers, in_hand=in_hand):
            return False
        twice = _made_twice(optimizers, in_hand=in_hand)
        if twice and optimizer == twice[0]:
            self.again.add(tuple(twice))
            return True
        return optimizer == optimizers[0]

    def step_closed(self, optimizers: list[int]) -> None:
        """Learn from the updates of a step that has ended."""
        self.seen.update(optimizers)
        updates = tuple(optimizers)
        if len(set(updates)) > 1 and len(updates) <= LONGEST and (len(self.whole) < KINDS or updates in self.whole):
            self.whole[updates] = self.whole.get(updates, 0) + 1
        if self.round:
            return
        self.updates += optimizers
        del self.updates[: -SEEN * LONGEST]
        for length in range(2, len(self.updates) // SEEN + 1):
            latest = self.updates[-length:]
            if len(set(latest)) > 1 and self.updates[-SEEN * length : -length] == latest:
                self.round = latest
                return


def _made_twice(optimizers: list[int], *, in_hand: bool) -> list[int]:
    """Return the round of several optimizers that ends a step's updates twice; of a batch ``in_hand``, also of one."""
    for length in range(1, min(len(optimizers), LONGEST) // 2 + 1):
        latest = optimizers[-length:]
        if optimizers[-2 * length : -length] == latest and (in_hand or len(set(latest)) > 1):
            return latest
    return []


class ClosureCode:
    """Code of the closure that an optimizer calls for the loss: time before its passes is not part of the update.

    Lightning's trainer and L-BFGS work so. Behind a backward pass, and where an optimizer may do something ahead of the
    closure, it is the optimizer that is at work.
    """

    def __init__(self) -> None:
        self.behind = ""  # which region it follows; "" while the optimizer may be at work
        self.since = self.inside = 0

    def begin(self, recorder: Any, *, first: bool) -> None:
        """Begin an update that calls its closure ``first``, if it has one, or may work ahead of it."""
        self.behind = recorder.before if first else ""
        self.since, self.inside = recorder.stack[-1][1], 0

    def passed(self, recorder: Any, name: str, end: int) -> None:
        """Hear that a region has ended inside of an update."""
        if name in PASSES or name == "input":
            self.behind = "" if name == "backward" else name
            self.since, self.inside = end, recorder.stack[-1][2]

    def end(self, recorder: Any, name: str, begin: int) -> None:
        """Take what was ahead of a pass from the update, as a gap."""
        if name not in PASSES:
            return
        gap = "update"
        if self.behind:
            gap = f"{self.behind}>{name}"
            collected = recorder.collections.take(self.since, recorder.ledger, last=False)
            taken = begin - self.since - (recorder.stack[-1][2] - self.inside)
            recorder.stack[-1][2] += taken
            recorder.ledger.add((self.since, GAP, gap, taken - collected))
        if recorder.sampler is not None:
            recorder.sampler.assign(gap)
