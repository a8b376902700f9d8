"""Phases as differences of the ladder's rungs."""

import numpy as np

from steptime.measurements.anatomy.rungs import Array, Climb


def ladder_phases(climb: Climb, *, synchronous: bool, workers: int, cuda: bool) -> dict[str, Array | None]:
    """Return the phases of one launch in seconds, of every block, as means over workers; None where a rung is missing.

    Rungs add one stage each, so that a phase is the time that its stage adds to a step. What the exchange adds has
    two parts: `sync_wait`, how much longer the slowest worker of a step computes than the mean worker (0 where
    nobody waits for it), and the rest, `comm_exposed`.

    Args:
        climb: the launch.
        synchronous: whether workers wait for each other in every step.
        workers: how many there are; one has nobody to wait for, and mostly nothing to exchange.
        cuda: whether batches are copied to a device; on a CPU they are not.
    """
    mean = {name: climb.means(name) for name in climb.rungs}
    nothing = np.zeros_like(mean["step"])

    def added(upper: str, lower: str | None) -> Array | None:
        return mean[upper] - mean[lower] if upper in mean and lower in mean else None

    alone = climb.alone
    top = "exchange" if workers > 1 or "exchange" in mean else alone
    exchange = nothing if top == alone else added("exchange", alone)
    wait = _wait(climb) if synchronous and workers > 1 else nothing
    return {
        "forward": mean.get("forward"),
        "backward": added("backward", "forward"),
        "update": added("local", "backward"),
        "sync_wait": wait,
        "comm_exposed": None if exchange is None or wait is None else exchange - wait,
        "h2d": added("h2d", top) if cuda else nothing,
        "input_wait": added("step", "h2d" if cuda and "h2d" in mean else top),
    }


def _wait(climb: Climb) -> Array | None:
    if climb.alone is None:
        return None
    return np.array([(block.max(axis=0) - block.mean(axis=0)).mean() for block in climb.rungs[climb.alone]])
