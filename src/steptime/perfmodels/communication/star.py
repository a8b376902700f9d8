"""All-reduce through one worker, which collects, adds and answers."""

import numpy as np

from steptime.perfmodels.communication.link import Link, Real


def star(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 a + 2(p-1) n/B``: everything passes the link of the one in the middle, in and out.

    >>> float(star(1e9, 4, Link(rate=1e9)))
    6.0
    """
    seconds: Real = np.where(np.asarray(workers) > 1, 2.0, 0.0) * link.start + 2 * (workers - 1) * size / link.rate
    return seconds
