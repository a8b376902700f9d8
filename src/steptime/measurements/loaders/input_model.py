"""The input model: when training waits for its loader, from times of either alone.

Sources: P. J. Denning, J. P. Buzen, The operational analysis of queueing network models, ACM Computing Surveys 10(3),
1978 (utilization law, bottleneck analysis); E. D. Lazowska et al., Quantitative System Performance, 1984, chapter 5
(asymptotic bounds). All quantities are per step of one worker; arrays are draws of what launches leave open.
"""

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.float64]


def step_s(training_s: Draws, loading_s: Draws, cpu_s: Draws, cores: int, *, ahead: bool) -> Draws:
    """Return the seconds of a step that loads its batch and trains on it.

    A loader that makes no batch ahead is a part of the step: ``T = M + L``. One that does works at the same time as
    the training: the step takes as long as the slowest of loader, training and the worker's cores,
    ``T = max(M, L, c / C)``.

    Args:
        training_s: M, a step on a batch that is there.
        loading_s: L, between two batches of the loader alone.
        cpu_s: c, processor seconds of training and loading one batch.
        cores: C, on which the worker and its helpers run.
        ahead: whether batches are made ahead.

    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 1, ahead=False))
    5.0
    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 1, ahead=True))
    4.0
    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 4, ahead=True))
    3.0
    """
    if not ahead:
        return training_s + loading_s
    return np.maximum(np.maximum(training_s, loading_s), cpu_s / cores)


def workers_per_host(training_s: Draws, cpu_s: Draws, cores: float) -> Draws:
    """Return from how many workers of one host on its processors are busy: ``n = C M / c``.

    By the utilization law, n workers that each take c processor seconds in every M seconds keep n c / M processors
    busy; a host has C. Beyond, every worker waits for its batches, whatever the number of helpers.

    Args:
        training_s: M, a step on a batch that is there.
        cpu_s: c, processor seconds of training and loading one batch.
        cores: C, of the host.
    """
    return cores * training_s / cpu_s


def device_factor(training_s: Draws, loading_s: Draws) -> Draws:
    """Return how many times as fast as here a device must train for this loader to become the limit: ``M / L``.

    Below 1 where the loader is the limit already.
    """
    return training_s / loading_s
