"""The strategies: how the workers of a trial come to the same weights, or do not.

Whatever depends on the kind of a strategy asks its ``Strategy``; no other module compares names of strategies. Which
framework has which strategy, and who must be started for it, is in the framework's manifest.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["optimizer", "gradients", "weights"]
Answer = Literal["mean", "any_order", "error_feedback", "blocks"]
"""What is right of several workers' weights, which the equivalence check asks:

``mean``
    Each update uses the mean of all workers' gradients: the weights are those of one worker with all batches.
``any_order``
    Each gradient updates once, in whatever order they come.
``error_feedback``
    What was sent so far is the mean of all gradients but for a residue that does not grow.
``blocks``
    Each worker updates alone for a block of samples; then all take the mean of their weights, with momentum.
"""


@dataclass(frozen=True)
class Strategy:
    """What is true of a strategy in every framework that has it."""

    name: str
    summary: str
    """One line for ``steptime list strategies``."""
    synchronous: bool = True
    """Whether the workers wait for each other, so that all of them end a step together."""
    exact: bool = True
    """Whether p workers compute the weights that one worker computes with p times the batch: such a strategy can be
    checked against the reference weight by weight, and is one of those that ``auto`` stands for."""
    answer: Answer = "mean"
    servers: bool = False
    """Whether processes of their own hold the weights: parameter servers."""
    shards: tuple[State, ...] = ()
    """The state of training that is split over the workers instead of being held by each."""
    single_baseline: bool = False
    """Whether this is one worker by itself: the first point of every other strategy's curve."""
    aliases: tuple[str, ...] = ()
    """Other names of it in tables of published points."""
    curve_model: bool = True
    """Whether the model of scaling curves describes its exchange."""


SINGLE = Strategy("single", "one worker that trains by itself", single_baseline=True)

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        SINGLE,
        Strategy("allreduce", "every worker averages its gradients with all others in each step"),
        Strategy(
            "ps_sync",
            "servers hold the weights; each step waits for the gradients of all workers",
            servers=True,
            aliases=("parameter_server_sync",),
        ),
        Strategy(
            "ps_async",
            "servers hold the weights; each worker pushes and pulls at its own pace",
            servers=True,
            synchronous=False,
            exact=False,
            answer="any_order",
            aliases=("parameter_server_async",),
        ),
        Strategy(
            "fsdp",
            "weights, gradients and optimizer state are split over the workers and gathered when needed",
            shards=("optimizer", "gradients", "weights"),
        ),
        Strategy(
            "zero1",
            "the optimizer's state is split over the workers, which average their gradients as in allreduce",
            shards=("optimizer",),
            aliases=("zero",),
        ),
        Strategy(
            "zero2",
            "optimizer state and gradients are split over the workers; each updates its part of the weights",
            shards=("optimizer", "gradients"),
        ),
        Strategy(
            "zero3",
            "weights, gradients and optimizer state are split; weights are gathered layer by layer when needed",
            shards=("optimizer", "gradients", "weights"),
        ),
        Strategy(
            "block_momentum",
            "workers train alone for a block of samples, then average their weights with momentum",
            exact=False,
            answer="blocks",
            curve_model=False,
        ),
        Strategy(
            "onebit",
            "as allreduce, but gradients travel as one bit per value, and the error is added to the next",
            exact=False,
            answer="error_feedback",
            curve_model=False,
        ),
    )
}
"""All strategies, by name."""


def strategy_named(name: str) -> Strategy:
    """Return the strategy ``name``.

    A name that is not in the table, as in results that a newer steptime wrote, is taken for a synchronous strategy
    without servers, which most are: its records can then still be reported.
    """
    return STRATEGIES.get(name) or Strategy(name, "")
