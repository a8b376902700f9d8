"""A throw-away run of a torch script, in which blocks of steps lack their loader, DDP's exchange or the update.

The weights are worthless afterwards and nothing is saved: only what `steptime attach --ablate` asks for comes here. All
ranks go through the same blocks, by the numbers of their steps, and end after the last.
"""

from __future__ import annotations

import random
from typing import Any

from .. import patches, process
from ..object_numbers import number_of
from . import collectives

WHOLE, INPUT, EXCHANGE, UPDATE = "whole", "input", "exchange", "update"
FIRST_STEP = 10
BLOCK_STEPS = 6
ROUNDS = 6
_SEED = 0


def blocks() -> list[tuple[int, str]]:
    """Return the blocks in their order: the number of the round, and what steps lack."""
    chance, found = random.Random(_SEED), []  # noqa: S311 - an order that all ranks share
    for number in range(ROUNDS):
        lacking = [WHOLE, INPUT, EXCHANGE, UPDATE]
        chance.shuffle(lacking)
        found += [(number, each) for each in lacking]
    return found


class Ablation:
    """What the steps of the present block lack."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.recorder = process.recorder()
        self.blocks = blocks()
        self.lacking = WHOLE
        self.batches: dict[int, Any] = {}
        self.gradients: dict[int, list[tuple[Any, Any]]] = {}
        self.recorder.each_step = True
        self.recorder.at_step.append(self.step_begins)
        process.note("a throw-away run: blocks of steps lacked a part of it, and torch.save wrote nothing")

    def step_begins(self, number: int) -> None:
        """Begin step ``number``; after the last block the script ends."""
        block, within = divmod(number - FIRST_STEP, BLOCK_STEPS)
        if block < 0:
            return
        if block >= len(self.blocks):
            raise SystemExit(0)
        of_round, self.lacking = self.blocks[block]
        # The first step after a change still has what the one before has left.
        self.recorder.flags.add(f"ablation:{of_round}:{self.lacking if within else 'change'}")
        for module in collectives.data_parallel_modules():
            module.require_backward_grad_sync = self.lacking != EXCHANGE

    def patch_loaders(self, iterator: Any) -> None:
        """Have the training loader's iterator give its last batch again where the input is left out."""
        patch = patches.Patch(iterator, "__next__")
        inner, recorder = patch.original, self.recorder

        def next_batch(self_: Any) -> Any:
            source = number_of(getattr(self_, "_dataset", self_), self_)
            if (
                self.lacking == INPUT
                and recorder.is_mine()
                and source == recorder.sources.latest
                and source in self.batches
            ):
                recorder.request_begin()
                recorder.request_end(source, "input")
                return self.batches[source]
            self.batches[source] = batch = inner(self_)
            return batch

        patch.put(next_batch)

    def without_gradients(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002 - torch's own form
        """Hide the gradients from an optimizer, whose step then has nothing to do."""
        if self.lacking == UPDATE:
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            self.gradients[id(optimizer)] = [(each, each.grad) for each in parameters]
            for each in parameters:
                each.grad = None

    def with_gradients(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002 - torch's own form
        """Show them again."""
        for parameter, gradient in self.gradients.pop(id(optimizer), []):
            parameter.grad = gradient


def install(torch: Any) -> None:
    """Make this run of ``torch`` a throw-away run."""
    ablation = Ablation(torch)
    ablation.patch_loaders(torch.utils.data.dataloader._BaseDataLoaderIter)
    torch.optim.optimizer.register_optimizer_step_pre_hook(ablation.without_gradients)
    torch.optim.optimizer.register_optimizer_step_post_hook(ablation.with_gradients)
    torch.save = lambda *_, **__: None
