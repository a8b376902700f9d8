"""Paleo's model at a constant batch per worker: computing, and gradients that go down and up a tree or to one place."""

import numpy as np

from steptime.perfmodels.references.curve_model import Array
from steptime.perfmodels.references.informed.job import Job

PERCENT_OF_PEAK = 0.72
"""Share of a link's nominal rate that a platform reaches: the most usual of the paper's own settings for networks."""


def paleo(job: Job, workers: Array, seconds: Array, asked: Array) -> Array:
    """Return ``c + 2 ceil(log2 p) D/B``, with parameter servers ``c + 2 (p-1)/k D/B``.

    Computing c is what the smallest measured number of workers leaves after its exchange, which stands for the
    platform's percent of peak in computing; nothing else is fitted. There is no latency and no overlap. Source:
    H. Qi, E. Sparks, A. Talwalkar, *Paleo*, ICLR 2017.
    """
    first = workers[:1]
    computing = max(0.0, float(seconds[0] - _exchange(job, first, None)[0]))
    found: Array = computing + _exchange(job, asked, job.servers)
    return found


def _exchange(job: Job, workers: Array, servers: Array | None) -> Array:
    rate = PERCENT_OF_PEAK * np.asarray(job.link(workers).rate)
    if job.servers is None:
        times = 2 * np.ceil(np.log2(workers))
    else:
        stated = np.full(len(workers), np.nan) if servers is None else servers
        times = 2 * (workers - 1) / np.where(stated >= 1, stated, _usual_servers(job, workers))
    found: Array = times * job.gradient_bytes / rate
    return found


def _usual_servers(job: Job, workers: Array) -> Array:
    """Return one server per host, where a table does not say."""
    hosts: Array = np.maximum(1.0, np.ceil(workers / job.host_size))
    return hosts
