"""Steps that vary."""

import numpy as np
import pytest

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect
from steptime.model.layer_work import work_of
from steptime.model.step_graph import step_graph
from steptime.simulate.configuration import Crew, Durations
from steptime.simulate.grid import Noise, play_steps
from steptime.simulate.simulate import play
from steptime.simulate.stragglers import Spread
from steptime.worker.communication import PolicyContext
from steptime.workloads.table import build_workload

GRAPH = step_graph(work_of(build_workload("resnet50")), "pytorch", "allreduce", PolicyContext())
STEP = Durations(forward=0.1, backward=0.2)
LINK = Interconnect(Link(1e12))


def _steps(workers, spread, noise=None, steps=4000):
    how = {} if noise is None else {"noise": noise}
    return play_steps(
        GRAPH, STEP, Crew(workers, spread=spread), LINK, steps=steps, generator=np.random.default_rng(7), **how
    )


@pytest.mark.parametrize("workers", [2, 64, 100_000])
def test_the_mean_of_many_steps_is_the_expected_step(workers):
    spread = Spread(0.0, 0.05)
    expected = play(GRAPH, STEP, Crew(workers, spread=spread), LINK).step[0]

    assert _steps(workers, spread).step.mean() == pytest.approx(expected, rel=2e-3)


def test_steps_without_variation_are_all_alike():
    assert np.ptp(_steps(8, Spread()).step) == 0


def test_each_step_is_the_sum_of_its_phases():
    played = _steps(8, Spread(0.05, 0.05), Noise(link=0.3, input=0.1))

    assert played.step == pytest.approx(sum(played.parts().values()))


def test_a_link_that_varies_makes_steps_vary():
    slow = Interconnect(Link(2e8))
    crew, many = Crew(8), {"steps": 2000, "generator": np.random.default_rng(0)}
    steps = play_steps(GRAPH, STEP, crew, slow, noise=Noise(link=0.2), **many).step

    assert 0.05 < steps.std() / steps.mean() < 0.3
