"""Many configurations at once."""

import numpy as np
import pytest

from steptime.model.collectives import Link
from steptime.model.interconnect import Interconnect
from steptime.model.layer_work import work_of
from steptime.model.step_graph import step_graph
from steptime.simulate.configuration import Crew, Durations
from steptime.simulate.grid import play_grid
from steptime.simulate.simulate import play
from steptime.worker.communication import PolicyContext
from steptime.workloads.table import build_workload

WORK = work_of(build_workload("resnet50"))


def _played(changed, numbers):
    graph = step_graph(WORK, changed["framework"], "allreduce", PolicyContext(options={"bucket_mb": changed["mb"]}))
    batch = np.asarray(numbers["batch"])
    return play(
        graph,
        Durations(forward=0.001 * batch, backward=0.002 * batch),
        Crew(numbers["workers"]),
        Interconnect(Link(numbers["bandwidth"], 1e-5)),
    )


AXES = (
    {"framework": ["pytorch", "caffe"], "mb": [5.0, 25.0, 50.0]},
    {
        "workers": [2, 8, 64],
        "bandwidth": [1e8, 1e9],
        "batch": [16, 32],
    },
)


def test_every_combination_is_there_once():
    grid = play_grid(*AXES, _played)

    rows = set(zip(*(column.tolist() for column in grid.columns.values()), strict=True))
    assert len(rows) == len(grid.phases.step) == 2 * 3 * 3 * 2 * 2


def test_a_combination_is_what_it_is_alone():
    grid = play_grid(*AXES, _played)

    for place in (0, 17, 40, 71):
        values = {name: column[place].item() for name, column in grid.columns.items()}
        assert grid.phases.step[place] == pytest.approx(_played(values, values).step[0])


def test_the_best_is_the_shortest_step():
    grid = play_grid(*AXES, _played)
    best, second = grid.best(2)

    assert best["step_s"] == pytest.approx(grid.phases.step.min())
    assert best["step_s"] <= second["step_s"]
    assert (best["workers"], best["bandwidth"], best["batch"]) == (2, 1e9, 16)
