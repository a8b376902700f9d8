"""The strategies: how the workers of a trial come to the same weights, or do not."""

STRATEGIES: dict[str, str] = {
    "single": "one worker that agrees with nobody",
    "allreduce": "every worker averages its gradients with all others in each step",
    "ps_sync": "servers hold the weights; each step waits for the gradients of all workers",
    "ps_async": "servers hold the weights; each worker pushes and pulls at its own pace",
    "fsdp": "weights, gradients and optimizer state are split over the workers and gathered when needed",
    "zero1": "the optimizer's state is split over the workers, which average their gradients as in allreduce",
    "zero2": "optimizer state and gradients are split over the workers; each updates its part of the weights",
    "zero3": "weights, gradients and optimizer state are split; weights are gathered layer by layer when needed",
    "block_momentum": "workers train alone for a block of samples, then average their weights with momentum",
    "onebit": "as allreduce, but gradients travel as one bit per value, and the error is added to the next",
}
"""Name and summary of every strategy; which framework knows which is in its manifest."""
