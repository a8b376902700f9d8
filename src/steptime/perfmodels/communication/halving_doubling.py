"""All-reduce by recursive halving and doubling (Rabenseifner): few rounds as a tree, few bytes as a ring."""

import numpy as np

from steptime.perfmodels.communication.link import Link, Real


def halving_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 log2(p) a + 2(p-1)/p n/B`` where p is a power of two, 2^r.

    Else the surplus over 2^r hands its message to partners before and gets the result after: two more rounds with the
    whole message. Workers that have no surplus to wait for send ahead, and what they send shares a partner's link with
    the message that is handed to it: ``1/2^t - 1/2^r`` of a message more, where 2^t is the largest power of two that
    divides p. Measured with MPICH (docs/models/communication.md); tests hold it to a simulation of every message.

    >>> float(halving_doubling(1e9, 4, Link(rate=1e9)))
    1.5
    >>> float(halving_doubling(1e9, 3, Link(rate=1e9)))
    3.5
    """
    count = np.asarray(workers).astype(np.int64)
    rounds = np.floor(np.log2(count))
    core, divisor = 2**rounds, count & -count
    surplus = np.where(core < count, 2.0, 0.0)
    messages = 2 * (core - 1) / core + surplus + (1 / divisor - 1 / core)
    seconds: Real = (2 * rounds + surplus) * link.start + messages * size / link.rate
    return seconds
