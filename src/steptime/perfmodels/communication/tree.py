"""All-reduce in binary trees: up to the root and down again, in pieces that follow each other."""

import numpy as np

from steptime.perfmodels.communication.link import Link, Real


def tree(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 ceil(log2 p) a + 2 n/B``: two complementary trees, pipelined, share the load.

    >>> float(tree(1e9, 8, Link(rate=1e9)))
    2.0
    """
    depth = np.ceil(np.log2(workers))
    seconds: Real = 2 * depth * link.start + np.where(depth > 0, 2.0, 0.0) * size / link.rate
    return seconds
