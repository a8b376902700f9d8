from dataclasses import replace

import numpy as np
import pytest
from world import KEY, TRUTH, World, a_deployment, a_profile, observed

from steptime.fitting.contention import step_model_of
from steptime.fitting.profile import LinkEstimate
from steptime.fitting.step_model import Contention, graph_of, measured_readiness, phases_of

GRAPH = graph_of(KEY, a_deployment(2, 32))
SIZES = [message.bytes for message in GRAPH.messages]


def pieces(share: float) -> tuple[tuple[float, float], ...]:
    """All pieces of the step, after the same share of the backward pass."""
    return tuple((float(size), share) for size in SIZES)


def test_pieces_of_the_graphs_sizes_say_when_messages_go():
    assert measured_readiness(GRAPH, [(), pieces(0.5), pieces(0.7)]) == pytest.approx(np.full(len(SIZES), 0.6))


@pytest.mark.parametrize("seen", [(), pieces(0.5)[1:], tuple((2 * size, share) for size, share in pieces(0.5))])
def test_other_pieces_say_nothing(seen):
    assert measured_readiness(GRAPH, [seen]) is None


def test_gradients_that_are_ready_late_are_waited_for_longer():
    link = LinkEstimate(latency_s=1e-4, rate=25e6, source="net", between_hosts=True)
    step_model = step_model_of(KEY, a_deployment(2, 32), link, Contention(1, 1))
    parameters = {name: np.array([value]) for name, value in TRUTH.items()}
    early, late = (
        phases_of(parameters, replace(step_model, ready=np.full(len(SIZES), share)))["comm_exposed"][0]
        for share in (0.2, 1.0)
    )
    assert late > early


def test_measured_readiness_is_used_for_the_same_strategy_only():
    observations = [
        replace(each, launch_phases=tuple(replace(one, pieces=pieces(0.5)) for one in each.launch_phases))
        for each in observed(World(), 1, [(1, 32), (2, 32)])
    ]
    group = next(group for group in a_profile(observations).groups if group.key == KEY)
    step_model = step_model_of(KEY, a_deployment(2, 32), None, Contention(1, 1), group.measured)
    assert step_model.ready == pytest.approx(np.full(len(SIZES), 0.5))
    others = [each for each in group.measured if each.strategy != KEY.strategy]
    assert step_model_of(KEY, a_deployment(2, 32), None, Contention(1, 1), others).ready is None
