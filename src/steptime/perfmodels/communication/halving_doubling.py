"""All-reduce by recursive halving and doubling (Rabenseifner): few rounds as a tree, few bytes as a ring."""

import numpy as np

from steptime.perfmodels.communication.link import Link, Real


def halving_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 log2(p) a + 2(p-1)/p n/B``.

    Where p is no power of two, the surplus hands its message to a partner before and gets the result after:
    two more rounds with the whole message.

    >>> float(halving_doubling(1e9, 4, Link(rate=1e9)))
    1.5
    """
    rounds = np.floor(np.log2(workers))
    core = 2**rounds
    surplus = np.where(core < workers, 2.0, 0.0)
    seconds: Real = (2 * rounds + surplus) * link.start + (2 * (core - 1) / core + surplus) * size / link.rate
    return seconds
