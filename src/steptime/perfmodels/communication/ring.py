"""All-reduce in a ring: every worker sends the share of one to its neighbour, 2(p-1) times."""

from steptime.perfmodels.communication.link import Link, Real


def ring(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of an all-reduce: ``2(p-1) a + 2(p-1)/p n/B``.

    Args:
        size: bytes that every worker contributes.
        workers: p; one worker has nobody to talk to.
        link: between neighbours, used in both directions at once.

    >>> ring(1e9, 4, Link(rate=1e9))
    1.5
    """
    return 2 * (workers - 1) * link.start + 2 * (workers - 1) / workers * size / link.rate
