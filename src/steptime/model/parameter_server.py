"""Parameter servers: how long an exchange in step takes, and how many updates a second servers without steps reach."""

import numpy as np

from steptime.model.collectives import Link, Real


def synchronous_exchange(  # noqa: PLR0913 - each is a quantity of the formula
    size: Real, workers: Real, servers: Real, link: Link, *, update_rate: Real = np.inf, largest_shard: Real = 1.0
) -> Real:
    """Return the seconds in which all workers push gradients and pull weights, on full-duplex links.

    The narrowest of three: a worker's own link, ``n/B``; a server's link, where the workers come together (incast),
    ``p n/(k B) s``; and a server's additions, ``p n/(k U) s``. Push and pull go opposite ways and overlap.

    Args:
        size: n, bytes of all gradients.
        workers: p.
        servers: k, on hosts of their own.
        link: of a worker and of a server, B; two latencies are spent, out and back.
        update_rate: U, bytes of gradients that a server adds per second.
        largest_shard: s, bytes of the largest shard over those of an even one.

    >>> float(synchronous_exchange(1e9, 4, 2, Link(rate=1e9)))
    2.0
    """
    incast = workers / servers * largest_shard
    per_byte = np.maximum(np.maximum(1.0, incast) / link.rate, incast / update_rate)
    seconds: Real = 2 * link.start + size * per_byte
    return seconds


def asynchronous_bound(workers: Real, thinking: Real, service: Real) -> Real:
    """Return the updates per second that workers of their own pace reach at most: ``min(p/(Z+S), 1/S)``.

    Holds well where times vary little; where they do, the simulator's queues stay below it.

    Args:
        workers: p.
        thinking: Z, seconds that a worker computes between two visits.
        service: S, seconds that the servers are busy with one update.
    """
    rate: Real = np.minimum(workers / (thinking + service), 1 / np.asarray(service, dtype=float))
    return rate
