"""Reduce-scatter in a ring: afterwards every worker holds the sum of its own share."""

from steptime.perfmodels.communication.link import Link, Real


def reduce_scatter(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``(p-1) a + (p-1)/p n/B``, with ``size`` the bytes before the reduction.

    >>> reduce_scatter(1e9, 4, Link(rate=1e9))
    0.75
    """
    return (workers - 1) * link.start + (workers - 1) / workers * size / link.rate
