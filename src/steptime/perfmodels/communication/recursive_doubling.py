"""All-reduce by recursive doubling: whole messages between partners twice as far apart in every round."""

import numpy as np

from steptime.perfmodels.communication.link import Link, Real


def recursive_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``r (a + n/B)`` with ``r = ceil(log2 p)``, and two rounds more where p is no power of two.

    The surplus workers hand their message to a partner first and get the result back last.

    >>> float(recursive_doubling(1e9, 4, Link(rate=1e9)))
    2.0
    """
    rounds = np.floor(np.log2(workers))
    surplus = np.where(2**rounds < workers, 2.0, 0.0)
    seconds: Real = (rounds + surplus) * (link.start + size / link.rate)
    return seconds
