"""Reading samples, as a stage that runs beside the step and may be the slower one."""

import numpy as np

from steptime.model.collectives import Real


def host_input_seconds(batch: Real, workers_in_host: Real, loader_rate: Real, host_rate: Real = np.inf) -> Real:
    """Return the seconds until the next batches of one host are there.

    Args:
        batch: samples per worker and step.
        workers_in_host: who share the host's processors and disk.
        loader_rate: samples per second that one worker's loader prepares.
        host_rate: samples per second that the host cannot exceed, however many loaders.
    """
    seconds: Real = np.maximum(batch / loader_rate, batch * workers_in_host / host_rate)
    return seconds


def with_input(step: Real, reading: Real, *, prefetched: bool = True) -> Real:
    """Return a step's seconds with its input: the longer of both where it is prefetched, else their sum."""
    seconds: Real = np.maximum(step, reading) if prefetched else step + reading
    return seconds
