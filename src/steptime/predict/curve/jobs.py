"""A curve's columns in the words of the reference models that are told of a job."""

from functools import cache

import numpy as np

from steptime.model.collectives import Link
from steptime.predict.curve.curve import ScalingCurve
from steptime.predict.curve.facts import LAYERS_OF_UNKNOWN, facts_of, layers_of, workload_of
from steptime.predict.curve.informed_models import Job, JobLayer, even_layers, scaled
from steptime.predict.curve.scores import Asked
from steptime.workloads.costs import costs
from steptime.workloads.table import LIBRARY, build_workload

_INSIDE_LATENCY = 5e-6


def job_of(curve: ScalingCurve, asked: Asked) -> Job:
    """Return the job of a curve; mixed precision of which nothing is known sends between two and four bytes a value."""
    facts = facts_of(curve.setup)
    servers = np.array([np.nan if count is None else count for _, count in asked], dtype=float)
    return Job(
        layers=scaled(_layers(workload_of(curve.setup), facts.gradient_bytes), 1 - 0.5 * facts.half_bytes),
        host_size=curve.setup.host_size,
        inside=Link(facts.inside_rate, _INSIDE_LATENCY),
        between=Link(facts.card_rate, facts.latency),
        servers=servers if facts.servers else None,
    )


@cache
def _layers(workload: str, gradient_bytes: float) -> tuple[JobLayer, ...]:
    if workload not in LIBRARY:
        return even_layers(layers_of(workload) or LAYERS_OF_UNKNOWN, gradient_bytes)
    found = list(reversed(costs(build_workload(workload)).layers))
    whole = sum(layer.backward_flops for layer in found)
    layers, waiting = [], 0.0
    for layer in found:
        waiting += layer.backward_flops / whole
        if layer.parameters:
            layers.append(JobLayer(waiting, layer.gradient_bytes))
            waiting = 0.0
    return tuple(layers)
