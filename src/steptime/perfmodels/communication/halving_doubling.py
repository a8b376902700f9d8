"""All-reduce by recursive halving and doubling (Rabenseifner): few rounds as a tree, few bytes as a ring."""

import numpy as np
from numpy.typing import NDArray

from steptime.perfmodels.communication.link import Link, Real

SOCKET_RENDEZVOUS_BYTES = 3_715_832.0
"""From which MPICH's messages over sockets between hosts wait for their receivers: what UCX 1.18 says of itself."""
_IN_STEP = 2
"""Workers that leave every all-reduce together, so that both say that they are ready before either sends."""


def halving_doubling(size: Real, workers: Real, link: Link) -> Real:
    """Return the seconds of ``2 log2(p) a + 2(p-1)/p n/B`` where p is a power of two, 2^r.

    Else the surplus over 2^r hands its message to partners before and gets the result after: two more rounds with the
    whole message. Workers that have no surplus to wait for send ahead, and what they send shares a partner's link with
    the message that is handed to it: ``1/2^t - 1/2^r`` of a message more, where 2^t is the largest power of two that
    divides p.

    Two partners whose parts are at least ``link.rendezvous`` long send half of them at the same time and half one
    after the other, since saying that one is ready waits behind what one sends: such a part takes half as long again.
    Who waits so does not send ahead, and the longer of the two counts.

    Both were measured with MPICH (docs/models/communication.md); tests hold the first to a simulation of every message.

    >>> float(halving_doubling(1e9, 4, Link(rate=1e9)))
    1.5
    >>> float(halving_doubling(1e9, 3, Link(rate=1e9)))
    3.5
    >>> float(halving_doubling(1e9, 4, Link(rate=1e9, rendezvous=5e8)))
    2.0
    """
    count = np.asarray(workers).astype(np.int64)
    rounds = np.floor(np.log2(count))
    core, divisor = 2**rounds, count & -count
    surplus = np.where(core < count, 2.0, 0.0)
    ahead = 1 / divisor - 1 / core
    messages = 2 * (core - 1) / core + surplus + np.maximum(ahead, _one_way(size, count, rounds, link))
    seconds: Real = (2 * rounds + surplus) * link.start + messages * size / link.rate
    return seconds


def _one_way(size: Real, count: NDArray[np.int64], rounds: Real, link: Link) -> Real:
    """Return by how many messages it takes longer that partners wait for each other: half of each part, there and back.

    The parts are 1/2, 1/4, … of a message.
    """
    parts = np.floor(np.log2(np.maximum(np.asarray(size, float) / link.rendezvous, 1.0)))
    waited: Real = np.where(count > _IN_STEP, 1.0 - 0.5 ** np.minimum(parts, rounds), 0.0)
    return waited
