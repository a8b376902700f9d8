"""What exchanges cost on an interconnect, in their two parts."""

import numpy as np
import pytest

from steptime.model.collectives import ALLREDUCE, Link
from steptime.model.interconnect import Interconnect, Switch, communication_cost


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
def test_the_two_parts_add_up_to_the_formula(algorithm, workers):
    link = Link(2e8, 1e-4, 2.0)

    cost = communication_cost("allreduce", np.array([1e3, 1e7]), workers, Interconnect(link, algorithm))

    assert cost.total == pytest.approx(np.asarray(ALLREDUCE[algorithm](np.array([1e3, 1e7]), workers, link)))


@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_the_start_knows_no_bytes_and_the_transfer_no_latency(algorithm):
    near, far = (
        communication_cost("allreduce", 1e6, 4, Interconnect(Link(1e8, latency), algorithm)) for latency in (0.0, 1e-3)
    )
    less = communication_cost("allreduce", 1e3, 4, Interconnect(Link(1e8, 1e-3), algorithm))

    assert near.start == 0
    assert near.transfer == far.transfer
    assert less.start == far.start


def test_workers_of_a_host_share_its_card():
    cost = communication_cost("allreduce", 1e9, 16, Interconnect(Link(1e9, 1e-5), workers_per_host=4))

    assert cost.total == pytest.approx(ALLREDUCE["ring"](1e9, 4, Link(1e9, 1e-5)))


def test_workers_of_a_single_host_do_not_use_its_card():
    cost = communication_cost("allreduce", 1e9, 4, Interconnect(Link(1e3), workers_per_host=8))

    assert cost.total == 0


def test_configurations_and_messages_have_an_axis_each():
    cost = communication_cost(
        "allreduce", np.ones(5), np.array([2.0, 4.0, 8.0]), Interconnect(Link(np.array([1e8, 1e9, 1e10])))
    )

    assert cost.start.shape == cost.transfer.shape == (3, 5)


def test_larger_messages_take_what_holds_from_their_size_on():
    switched = Interconnect(Link(1e9, 1e-5), "halving_doubling", switches=(Switch(1e4, Link(2e9, 2e-5), "ring"),))

    small, large = communication_cost("allreduce", np.array([9_999.0, 10_000.0]), 8, switched).total

    assert small == pytest.approx(ALLREDUCE["halving_doubling"](9_999.0, 8, Link(1e9, 1e-5)))
    assert large == pytest.approx(ALLREDUCE["ring"](10_000.0, 8, Link(2e9, 2e-5)))
