"""What exchanges cost on an interconnect, in their two parts."""

import numpy as np
import pytest

from steptime.model.collectives import ALLREDUCE, Link, two_level
from steptime.model.interconnect import Interconnect, Switch, carriage


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
def test_the_two_parts_add_up_to_the_formula(algorithm, workers):
    link = Link(2e8, 1e-4, 2.0)

    cost = carriage("allreduce", np.array([1e3, 1e7]), workers, Interconnect(link, algorithm))

    assert cost.alone == pytest.approx(np.asarray(ALLREDUCE[algorithm](np.array([1e3, 1e7]), workers, link)))


@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_the_start_knows_no_bytes_and_the_transfer_no_latency(algorithm):
    near, far = (carriage("allreduce", 1e6, 4, Interconnect(Link(1e8, latency), algorithm)) for latency in (0.0, 1e-3))
    less = carriage("allreduce", 1e3, 4, Interconnect(Link(1e8, 1e-3), algorithm))

    assert near.start == 0
    assert near.transfer == far.transfer
    assert less.start == far.start


def test_workers_of_a_host_share_its_card():
    cost = carriage("allreduce", 1e9, 16, Interconnect(Link(1e9, 1e-5), workers_per_host=4, inside=Link(1e10, 1e-6)))

    assert cost.alone == pytest.approx(two_level(1e9, 4, 4, Link(1e10, 1e-6), Link(1e9, 1e-5)))


def test_two_cards_carry_twice_as_much():
    one, two = (carriage("allreduce", 1e9, 8, Interconnect(Link(1e9), cards=cards)).transfer for cards in (1.0, 2.0))

    assert one == pytest.approx(2 * two)


def test_workers_of_a_single_host_do_not_use_its_card():
    cost = carriage("allreduce", 1e9, 4, Interconnect(Link(1e3), workers_per_host=8, inside=Link(1e10)))

    assert cost.alone == pytest.approx(1.5e9 / 1e10)


def test_configurations_and_messages_have_an_axis_each():
    cost = carriage("allreduce", np.ones(5), np.array([2.0, 4.0, 8.0]), Interconnect(Link(np.array([1e8, 1e9, 1e10]))))

    assert cost.start.shape == cost.transfer.shape == (3, 5)


def test_larger_messages_take_what_holds_from_their_size_on():
    switched = Interconnect(Link(1e9, 1e-5), "recursive_doubling", switches=(Switch(1e4, Link(2e9, 2e-5), "ring"),))

    small, large = carriage("allreduce", np.array([9_999.0, 10_000.0]), 8, switched).alone

    assert small == pytest.approx(ALLREDUCE["recursive_doubling"](9_999.0, 8, Link(1e9, 1e-5)))
    assert large == pytest.approx(ALLREDUCE["ring"](10_000.0, 8, Link(2e9, 2e-5)))
