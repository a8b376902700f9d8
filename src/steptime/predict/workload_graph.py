"""What a framework exchanges in a step of a workload, and what the workload costs; made once for each question."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from steptime.model.layer_work import work_of
from steptime.model.step_graph import StepGraph, step_graph
from steptime.predict.observation import Key, Setting
from steptime.predict.parameter_draws import Array
from steptime.worker.communication import PolicyContext
from steptime.workloads.costs import Costs, costs
from steptime.workloads.table import build_workload

_ALIKE = 0.01
"""Relative difference of sizes that padding makes."""


@cache
def costs_of(workload: str, input_shape: tuple[int, ...], classes: int) -> Costs:
    """Return the costs of a workload of the library."""
    return costs(build_workload(workload, input_shape, classes))


@cache
def graph_of(key: Key, setting: Setting) -> StepGraph:
    """Return what precedes what in a step; the strategy must be one that ``has_policy``."""
    options = dict(key.options)
    if setting.bucket_mb is not None:
        options["bucket_mb"] = setting.bucket_mb
    return step_graph(
        work_of(build_workload(key.workload, key.input_shape, key.classes)),
        key.framework,
        key.strategy,
        PolicyContext(
            workers=setting.workers,
            servers=setting.servers,
            options=options,
            device="cuda" if key.device == "cuda" else "cpu",
            batch=setting.batch,
        ),
    )


def readiness(graph: StepGraph, measured: Iterable[Sequence[tuple[float, float]]]) -> Array | None:
    """Return after which share of the backward pass each message can go, where pieces of these sizes were seen to go.

    None where none were: the simulator then takes the layers' arithmetic.
    """
    sizes = np.array([message.bytes for message in graph.messages], dtype=np.float64)
    seen = [
        [share for _, share in pieces]
        for pieces in measured
        if len(pieces) == len(sizes) and np.allclose([size for size, _ in pieces], sizes, rtol=_ALIKE)
    ]
    return np.mean(seen, axis=0) if seen else None
