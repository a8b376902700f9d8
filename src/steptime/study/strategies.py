"""The strategies: how the workers of a trial come to the same weights, or do not."""

STRATEGIES: dict[str, str] = {
    "single": "one worker that agrees with nobody",
    "allreduce": "every worker averages its gradients with all others in each step",
    "ps_sync": "servers hold the weights; each step waits for the gradients of all workers",
    "ps_async": "servers hold the weights; each worker pushes and pulls at its own pace",
    "fsdp": "weights, gradients and optimizer state are split over the workers and gathered when needed",
}
"""Name and summary of every strategy; which framework knows which is in its manifest."""
