"""All-reduce on two levels: inside each host, then between hosts whose card all its workers share."""

from steptime.perfmodels.communication.link import Link, Real
from steptime.perfmodels.communication.ring import ring


def two_level(size: Real, workers_per_host: Real, hosts: Real, inside: Link, between: Link) -> Real:
    """Return the seconds of a ring inside every host and a ring of hosts.

    Each worker of a host carries its share of the sum between hosts; together they send the bytes of one worker
    through the host's card: ``2(g-1)/g n/B_in + 2(h-1)/h n/B_card``, and the latencies of both rings.

    >>> two_level(1e9, 1, 4, Link(rate=1e12), Link(rate=1e9))
    1.5
    """
    return ring(size, workers_per_host, inside) + ring(size, hosts, between)
