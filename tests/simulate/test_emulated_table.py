"""What follows from a calibration without communication and two numbers of a link, beside 27 measured steps."""

import numpy as np
import pytest
import small_works
from emulated_table import CALIBRATION, CELLS, LINKS

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect
from steptime.model.policies import step_graph
from steptime.simulate.configuration import Durations, WorkerGroup
from steptime.simulate.fusion import share_link
from steptime.simulate.simulate import simulate
from steptime.worker.communication import PolicyContext

_GLOO = 2.0
"""Latencies per step of its ring."""


def _predicted(workload, rate, workers):
    graph = step_graph(getattr(small_works, workload)(), "pytorch", "allreduce", PolicyContext(workers=workers))
    whole, ready = CALIBRATION[workload][workers]
    four_latencies, megabits = LINKS[rate]
    link = Link(megabits * 1e6 / 8, four_latencies * 1e-3 / 4, _GLOO)
    durations = Durations(forward=0.0, backward=ready[-1] * 1e-3, update=(whole - ready[-1]) * 1e-3)
    played = simulate(graph, durations, WorkerGroup(workers), Interconnect(link), ready=np.array(ready) / ready[-1])
    return float(played.step[0]) * 1e3


@pytest.fixture(scope="module")
def errors():
    return {cell[:3]: _predicted(*cell[:3]) / cell[3] - 1.0 for cell in CELLS}


def test_half_of_the_steps_are_predicted_within_one_percent(errors):
    assert np.median(np.abs(list(errors.values()))) <= 0.01


def test_no_step_is_off_by_more_than_what_the_recursion_was_seen_to_be(errors):
    worst = max(errors, key=lambda cell: abs(errors[cell]))

    assert worst == ("lenet5", 200, 2)
    assert abs(errors[worst]) <= 0.092


def test_steps_above_300_ms_are_predicted_within_three_percent(errors):
    # One was measured beside load of other processes, 545 ms where two repetitions had 531: -3.1 % become -0.5 %.
    long = [errors[cell[:3]] for cell in CELLS if cell[3] > 300 and cell[:3] != ("small_alexnet", 200, 4)]

    assert len(long) == 17
    assert max(map(abs, long)) <= 0.03
    assert abs(errors["small_alexnet", 200, 4]) <= 0.032


def test_the_second_bucket_of_the_mlp_overtakes_the_first_as_it_was_seen_to():
    # Measured: the first was there after 337 ms, the second after 245.
    work = small_works.mlp()
    sizes = np.array(
        [[message.bytes for message in step_graph(work, "pytorch", "allreduce", PolicyContext()).messages]]
    )
    transfer = sizes * 8 / (LINKS[200][1] * 1e6)
    ready = np.array([CALIBRATION["mlp"][2][1]]) * 1e-3

    played = share_link(ready, np.full((1, 2), LINKS[200][0] * 1e-3), transfer, ready[:, -1], in_flight=2)

    assert played.ends[0, 1] < played.ends[0, 0]
    assert played.ends[0] == pytest.approx([0.337, 0.245], rel=0.15)
