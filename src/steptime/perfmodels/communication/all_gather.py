"""All-gather in a ring: every worker passes the shares of the others on."""

from steptime.perfmodels.communication.link import Link, Real


def all_gather(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``(p-1) a + (p-1)/p n/B``, with ``size`` the bytes that every worker ends up with.

    >>> all_gather(1e9, 4, Link(rate=1e9))
    0.75
    """
    return (workers - 1) * link.start + (workers - 1) / workers * size / link.rate
