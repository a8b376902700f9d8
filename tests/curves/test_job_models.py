"""The classic models that are told of a job: their limits, and that they continue the curves that they describe."""

from dataclasses import replace

import numpy as np
import pytest

from steptime.curves.reference_models import (
    INFORMED,
    PERCENT_OF_PEAK,
    Job,
    JobLayer,
    even_layers,
    exchanges,
    paleo,
    ssgd,
    wait_free,
)
from steptime.model.collectives import Link

MEASURED = np.array([1.0, 2.0, 4.0, 8.0])
ASKED = np.array([16.0, 64.0])

JOB = Job(even_layers(10, 1e8), host_size=4, inside=Link(1e10, 1e-6), between=Link(1e9, 1e-5))


@pytest.mark.parametrize("name", INFORMED)
def test_nothing_is_added_where_nothing_is_sent(name):
    silent = replace(JOB, layers=even_layers(10, 0.0), inside=Link(1e10), between=Link(1e9))
    assert INFORMED[name](silent, MEASURED, np.full(4, 0.3), ASKED) == pytest.approx([0.3, 0.3], rel=1e-6)


@pytest.mark.parametrize("name", INFORMED)
def test_one_point_is_enough_to_say_something(name):
    found = INFORMED[name](JOB, MEASURED[:1], np.array([0.3]), ASKED)
    assert np.all(np.isfinite(found))
    assert np.all(found >= 0.3)


@pytest.mark.parametrize("name", INFORMED)
def test_a_slower_network_takes_longer(name):
    seconds = np.array([1.0, 1.1])
    quick, slow = (
        INFORMED[name](replace(JOB, between=Link(rate)), MEASURED[:2], seconds, ASKED)[0] for rate in (1e9, 1e8)
    )
    assert slow > quick


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_without_overlap_computing_and_the_quality_of_the_link_are_recovered(slower):
    truth = 0.3 + slower * exchanges(JOB, np.concatenate([MEASURED, ASKED])).sum(axis=1)
    assert ssgd(JOB, MEASURED, truth[:4], ASKED) == pytest.approx(truth[4:], rel=1e-6)


def test_overlap_never_takes_longer_than_none_and_never_less_than_either_part():
    """With the same computing and link, by the first point and no other to fit."""
    first = np.array([0.3])
    plain = ssgd(JOB, MEASURED[:1], first, ASKED) + exchanges(JOB, ASKED).sum(axis=1)
    overlapped = wait_free(JOB, MEASURED[:1], first, ASKED)
    assert np.all(overlapped <= plain + 1e-12)
    assert np.all(overlapped >= np.maximum(0.3, exchanges(JOB, ASKED).sum(axis=1)))


def test_only_the_first_layer_shows_where_the_others_have_time_to_hide():
    """The exchange of the layer that the backward pass reaches last starts when there is nothing left to compute."""
    layers = (JobLayer(0.5, 1e6), JobLayer(0.5, 2e6))
    quick = Job(layers, host_size=1, inside=Link(1e12), between=Link(1e9))
    found = wait_free(quick, np.array([1.0]), np.array([0.3]), np.array([2.0]))
    assert found == pytest.approx([0.3 + 2e6 / 1e9])


def test_a_tree_goes_down_and_up_once_per_doubling():
    found = paleo(JOB, MEASURED[:1], np.array([0.3]), np.array([16.0]))
    assert found == pytest.approx([0.3 + 2 * 4 * 1e8 / (PERCENT_OF_PEAK * 1e9)])


def test_servers_share_what_the_workers_send():
    one, four = (
        paleo(replace(JOB, servers=np.array([count])), MEASURED[:1], np.array([0.3]), np.array([16.0]))[0] - 0.3
        for count in (1.0, 4.0)
    )
    assert one == pytest.approx(4 * four)
