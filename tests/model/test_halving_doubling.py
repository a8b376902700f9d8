"""Halving and doubling among workers that are no power of two, beside a simulation of every message on its links."""

from collections import Counter

import numpy as np
import pytest

from steptime.model.collectives import Link, halving_doubling

SENDS_AHEAD = Link(1.0, sends_ahead=True)


def _exchanges(rank, workers):
    """Yield what a worker sends, (to whom, how much of a message), and whom it receives from; None for nobody."""
    rounds = workers.bit_length() - 1
    surplus = workers - 2**rounds
    if rank < 2 * surplus and rank % 2 == 0:
        yield (rank + 1, 1.0), None
        yield None, rank + 1
        return
    if rank < 2 * surplus:
        yield None, rank - 1
    number = rank // 2 if rank < 2 * surplus else rank - surplus
    halving = [(number ^ 2**bit, 0.5 ** (bit + 1)) for bit in range(rounds)]
    for partner, part in halving + halving[::-1]:
        other = 2 * partner + 1 if partner < surplus else partner + surplus
        yield (other, part), other
    if rank < 2 * surplus:
        yield (rank - 1, 1.0), None


def _simulated(workers):
    """Return when the last worker has the sum, in messages per link; what is sent does not wait for its receiver."""
    programs = [_exchanges(rank, workers) for rank in range(workers)]
    waiting, flying, arrived, clock = [None] * workers, {}, Counter(), 0.0
    idle = set(range(workers))
    while True:
        while idle:
            rank = idle.pop()
            waiting[rank] = next(programs[rank], None)
            if waiting[rank] and waiting[rank][0]:
                to, part = waiting[rank][0]
                flying[rank, to] = part
        for rank, now in enumerate(waiting):
            if now is None or any(sender == rank for sender, _ in flying):
                continue
            if now[1] is None or arrived[now[1], rank]:
                arrived[now[1], rank] -= 1
                waiting[rank] = None
                idle.add(rank)
        if idle:
            continue
        if not flying:
            return clock
        leaving, coming = Counter(sender for sender, _ in flying), Counter(to for _, to in flying)
        pace = {pair: 1.0 / max(leaving[pair[0]], coming[pair[1]]) for pair in flying}
        jump = min(left / pace[pair] for pair, left in flying.items())
        clock += jump
        flying = {pair: left - jump * pace[pair] for pair, left in flying.items()}
        for pair in [pair for pair, left in flying.items() if left < 1e-12]:
            del flying[pair]
            arrived[pair] += 1


@pytest.mark.parametrize("workers", range(1, 34))
def test_messages_take_as_long_as_simulated(workers):
    assert halving_doubling(1.0, workers, SENDS_AHEAD) == pytest.approx(_simulated(workers))


@pytest.mark.parametrize(("workers", "messages"), [(3, 3.0), (5, 3.5), (6, 3.5)])
def test_nothing_is_sent_ahead_where_nobody_saw_it(workers, messages):
    assert halving_doubling(1.0, workers, Link(1.0)) == messages


def _waiting(size, workers):
    """Return messages per link where parts of a thousand bytes and more wait for their receivers."""
    return halving_doubling(size, workers, Link(size, rendezvous=1000.0, sends_ahead=True))


class TestPartnersThatWaitForEachOther:
    """What MPICH was measured to do over sockets, for all sizes and workers."""

    @pytest.mark.parametrize("workers", range(1, 34))
    def test_are_as_fast_as_others_below_the_size(self, workers):
        assert _waiting(1999.0, workers) == halving_doubling(1.0, workers, SENDS_AHEAD)

    def test_are_as_fast_as_others_where_there_are_two(self):
        assert _waiting(1e6, 2) == 1.0

    @pytest.mark.parametrize("workers", [4, 8, 16, 32])
    def test_send_half_of_every_part_one_after_the_other(self, workers):
        assert _waiting(1e9, workers) == pytest.approx(1.5 * halving_doubling(1.0, workers, SENDS_AHEAD))

    def test_take_longer_by_one_more_part_with_every_doubling(self):
        found = _waiting(np.array([1999.0, 2000.0, 3999.0, 4000.0, 8000.0]), 8)
        assert found == pytest.approx([1.75, 2.25, 2.25, 2.5, 2.625])

    @pytest.mark.parametrize("workers", range(3, 34))
    def test_never_send_more_than_all_one_after_the_other(self, workers):
        assert _waiting(1e9, workers) <= 2.0 * halving_doubling(1.0, workers, SENDS_AHEAD)
