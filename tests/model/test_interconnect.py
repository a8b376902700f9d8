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


def test_a_step_takes_at_least_what_the_link_says_with_its_bytes():
    small, large = communication_cost(
        "allreduce", np.array([1e3, 1e8]), 4, Interconnect(Link(1e8, 1e-4, least=1e-2))
    ).total
    free = communication_cost("allreduce", 1e8, 4, Interconnect(Link(1e8, 1e-4))).total

    assert small == pytest.approx(2 * 3 * 1e-2)
    assert large == free


def test_a_ring_of_all_workers_crosses_the_card_of_each_host():
    cost = communication_cost("allreduce", 1e9, 16, Interconnect(Link(1e9, 1e-5), workers_per_host=4))

    assert cost.transfer == pytest.approx(2 * 15 / 16)
    assert cost.start == 0


def test_latencies_between_hosts_count_for_messages_without_bytes():
    cost = communication_cost("allreduce", 0.0, 16, Interconnect(Link(1e9, 1e-5), workers_per_host=4))

    assert cost.total == pytest.approx(2 * 3 * 1e-5)


def test_a_piece_goes_round_a_ring_with_the_latencies_and_bytes_of_all_links():
    inner, outer = Link(4e9, 1e-3), Link(1e9, 1e-2)

    cost = communication_cost("allreduce", 1.6e6, 16, Interconnect(outer, workers_per_host=4, inner=inner))

    assert cost.total == pytest.approx(2 * (16 - 4) * (1e-3 + 1e5 / 4e9) + 2 * (4 - 1) * (1e-2 + 1e5 / 1e9))


def test_latencies_of_a_ring_hide_behind_its_slowest_link():
    inner, outer = Link(1e12, 1e-6), Link(1e9, 1e-5)

    cost = communication_cost("allreduce", 1e9, 16, Interconnect(outer, workers_per_host=4, inner=inner))

    assert cost.total == pytest.approx(2 * 15 / 16)


def test_steps_of_a_ring_inside_hosts_cost_the_inner_latency():
    inner = Link(1e12, 1e-6)

    cost = communication_cost("allreduce", 0.0, 16, Interconnect(Link(1e9, 1e-5), workers_per_host=4, inner=inner))

    assert cost.start == pytest.approx(2 * (16 - 4) * 1e-6 + 2 * (4 - 1) * 1e-5)


def test_a_ring_is_spread_over_the_cards_of_a_host():
    inner = Link(1e12)

    cost = communication_cost(
        "allreduce", 1e9, 16, Interconnect(Link(1e9), workers_per_host=4, inner=inner, nics_per_host=4)
    )

    assert cost.transfer == pytest.approx(2 * 15 / 16 / 4)


def test_a_ring_inside_one_host_takes_the_time_of_the_inner_link():
    inner = Link(1e9, 1e-6)

    cost = communication_cost("allreduce", 1e9, 8, Interconnect(Link(1e3), workers_per_host=8, inner=inner))

    assert cost.total == pytest.approx(ALLREDUCE["ring"](1e9, 8, inner))


def test_halving_and_doubling_sends_between_hosts_what_one_worker_of_each_would():
    inner, outer = Link(1e10, 1e-6), Link(1e9, 1e-5)

    cost = communication_cost(
        "allreduce", 1e9, 16, Interconnect(outer, "halving_doubling", workers_per_host=4, inner=inner)
    )

    formula = ALLREDUCE["halving_doubling"]
    assert cost.total == pytest.approx(np.asarray(formula(1e9, 4, outer)) + np.asarray(formula(1e9, 4, inner)))


def test_the_middle_of_a_star_hears_all_workers_of_other_hosts_by_its_card():
    cost = communication_cost("star", 1e5, 16, Interconnect(Link(1e5), workers_per_host=4, inner=Link(1e12)))

    assert cost.transfer == pytest.approx(2 * 12)


def test_workers_of_a_single_host_do_not_use_its_card():
    cost = communication_cost("allreduce", 1e9, 4, Interconnect(Link(1e3), workers_per_host=8))

    assert cost.total == 0


def test_configurations_and_messages_have_an_axis_each():
    cost = communication_cost(
        "allreduce", np.ones(5), np.array([2.0, 4.0, 8.0]), Interconnect(Link(np.array([1e8, 1e9, 1e10])))
    )

    assert cost.start.shape == cost.transfer.shape == (3, 5)


@pytest.mark.parametrize(("library", "short"), [("mpich", 2048.0), ("open_mpi", 9_999.0)])
def test_a_library_doubles_recursively_for_short_messages_only(library, short):
    link = Link(1e9, 1e-5)

    few, many = communication_cost("allreduce", np.array([short, 1e8]), 8, Interconnect(link, library)).total

    assert few == pytest.approx(np.asarray(ALLREDUCE["recursive_doubling"](short, 8, link)))
    assert many < ALLREDUCE["recursive_doubling"](1e8, 8, link)


def test_larger_messages_take_what_holds_from_their_size_on():
    switched = Interconnect(Link(1e9, 1e-5), "halving_doubling", switches=(Switch(1e4, Link(2e9, 2e-5), "ring"),))

    small, large = communication_cost("allreduce", np.array([9_999.0, 10_000.0]), 8, switched).total

    assert small == pytest.approx(ALLREDUCE["halving_doubling"](9_999.0, 8, Link(1e9, 1e-5)))
    assert large == pytest.approx(ALLREDUCE["ring"](10_000.0, 8, Link(2e9, 2e-5)))
