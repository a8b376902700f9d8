"""Contention: which processors the workers of a configuration share, and the model of its step with them.

Both serve configurations that were measured and those that are predicted.
"""

from collections.abc import Sequence

import numpy as np

from steptime.fitting.links import inside_of, link_of_other_library
from steptime.fitting.observation import NO_EFFECTS, RAMP_S, TICK_S, Deployment, GroupKey, MachineEffects
from steptime.fitting.profile import LinkEstimate, Machine, MeasuredConfiguration
from steptime.fitting.step_model import Contention, StepModel, graph_of, measured_readiness
from steptime.model.collectives import SOCKET_RENDEZVOUS_BYTES, Link

_ROUNDING = 1e-9


def contention_of(deployment: Deployment, key: GroupKey, machine: Machine) -> Contention:
    """Return how many workers share processors, and how many of these workers the processors can run at once."""
    shared = deployment.workers if deployment.emulated else min(deployment.workers, deployment.workers_per_host)
    if key.device == "cuda":
        processors = machine.gpus
    elif machine.cores is None:
        processors = shared
    else:
        processors = machine.cores // max(key.threads, 1)
        if deployment.cpu_share < 1.0:
            processors = int(machine.cores / max(key.threads, 1) / deployment.cpu_share + _ROUNDING)
    return Contention(shared, max(processors, 1))


def step_model_of(  # noqa: PLR0913, PLR0917 - a configuration, and what joins and occupies its workers
    key: GroupKey,
    deployment: Deployment,
    link: LinkEstimate | None,
    contention: Contention,
    measured: Sequence[MeasuredConfiguration] = (),
    inner: LinkEstimate | None = None,
    effects: MachineEffects = NO_EFFECTS,
) -> StepModel:
    """Return the performance model of a step; ``measured`` are configurations of the same workload."""
    graph = graph_of(key, deployment)
    algorithm = deployment.collectives or ("nccl" if key.device == "cuda" else "ring")
    if key.device == "cuda" and algorithm != "nccl":
        link, inner = (None if each is None else link_of_other_library(each) for each in (link, inner))
    return StepModel(
        deployment=deployment,
        graph=graph,
        ready=measured_readiness(graph, (each.pieces for each in measured if each.strategy == key.strategy)),
        link=None if link is None else _link(link, deployment, effects, in_turns=contention.turns > 1),
        contention=contention,
        inner=None if inner is None else _link(inner, inside_of(deployment), NO_EFFECTS),
        algorithm=algorithm,
        wake_up_s=TICK_S if effects.preempted and _cores_are_full(key, deployment, contention) else 0.0,
    )


def _cores_are_full(key: GroupKey, deployment: Deployment, contention: Contention) -> bool:
    """Say whether computing leaves no core to threads that communicate; emulated hosts pin both to one core."""
    return key.device != "cuda" and (deployment.emulated or contention.workers >= contention.processors)


def _link(estimate: LinkEstimate, deployment: Deployment, effects: MachineEffects, *, in_turns: bool = False) -> Link:
    # What was seen on links behind token buckets does not describe the links of other hosts.
    sockets = effects.token_buckets and deployment.emulated and deployment.crosses
    return Link(
        rate=estimate.rate,
        latency=estimate.latency_s,
        least=estimate.least_in_turns_s if in_turns else 0.0,
        rendezvous=SOCKET_RENDEZVOUS_BYTES if sockets else np.inf,
        ramp_s=RAMP_S if sockets else 0.0,
        sends_ahead=sockets,
        medium=estimate.medium,
        switch_share=estimate.switch_share,
        efficiency=tuple(estimate.efficiency),
    )
