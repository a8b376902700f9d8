"""Fitting: from observations to a profile, with one group for each ``GroupKey``."""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import ValidationError

import steptime
from steptime.catalog.choices import strategy_named
from steptime.errors import StoreError
from steptime.fitting.compute_fit import ComputeFit, fit_computing
from steptime.fitting.contention import contention_of, step_model_of
from steptime.fitting.importance_sampling import (
    OVERLAP,
    ExchangeObservation,
    ExchangePrior,
    overlap_prior,
    sample_posterior,
)
from steptime.fitting.links import (
    LINK_SOURCES,
    PRIOR_SPREADS,
    LinkSpread,
    fit_tables,
    inner_link,
    measured_link,
    net_links,
    prior_spread,
)
from steptime.fitting.nccl_output import NcclTable
from steptime.fitting.observation import GroupKey, MachineEffects, Observation, effects_of
from steptime.fitting.posterior import LEVEL, Array, bounds
from steptime.fitting.profile import (
    SCHEMA,
    FittedParameter,
    How,
    LinkEstimate,
    LinkSource,
    Machine,
    MeasuredConfiguration,
    NetLink,
    Profile,
    ProfileGroup,
)
from steptime.fitting.step_model import INNER, OUTER, costs_of
from steptime.model.policies import has_own_policy, has_policy
from steptime.results.peaks import PEAKS, StoredPeaks
from steptime.results.store import Store
from steptime.results.stored_record import first_mistake
from steptime.statistics.interval import t_quantile

_SEED = 20261121

USUAL_LAUNCH_SPREAD = 0.02
"""Relative standard deviation between launches, before any was seen; it counts as one launch."""


def fit(store: Store, observations: Sequence[Observation], tables: Sequence[NcclTable] = ()) -> Profile:
    """Return the profile of a results folder and of what was observed there.

    Args:
        store: the folder.
        observations: of its trials.
        tables: of nccl-tests, on the same hosts.

    Raises StoreError where a number that was found lies outside every model.
    """
    machine = machine_of(store.machine() or {})
    keys = dict.fromkeys(each.key for each in observations)
    try:
        net = [*net_links(store.net()), *(each.link for each in fit_tables(tables, machine.gpu))]
        return Profile(
            format_version=SCHEMA,
            written_by=steptime.__version__,
            results=str(store.study_json.get("name", store.path.name)),
            machine=machine,
            steps=sum(each.step_count for each in observations),
            groups=[fit_group(key, observations, machine, net) for key in keys],
            net=net,
            peaks=StoredPeaks.model_validate(store.get(PEAKS) or {}).peaks,
        )
    except ValidationError as error:
        message = f"no model describes what {store.path} holds ({first_mistake(error)}); measure it again"
        raise StoreError(message) from error


def fit_group(
    key: GroupKey, observations: Sequence[Observation], machine: Machine, net: Sequence[NetLink]
) -> ProfileGroup:
    """Return the fitted group of ``key``; configurations of other strategies that compute the same help."""
    rng = np.random.default_rng(_SEED)
    own = [each for each in observations if each.key == key]
    helping = [each for each in observations if each.key != key and each.key.computes_as(key) and _helps(each)]
    used = [*own, *helping]
    cost = costs_of(key.workload, key.input_shape, key.classes)
    measured = [_measured(each, net, machine, _effects(each, observations)) for each in used]
    alike = used if strategy_named(key.strategy).single_baseline else [*own, *_of_like_company(own, helping)]
    found = fit_computing(alike, cost, lambda each: contention_of(each.deployment, each.key, machine), rng)
    if found is None:
        reason = (
            "computing cannot be told from communicating, with no configuration of one worker and no breakdown; add "
            "workers: [1, ...] or breakdown: true to the study and run it again"
        )
        return ProfileGroup(
            key=key, measured=measured, parameters={}, spread=0.0, held_out=[], notes=[], refused=reason
        )
    draws, how = dict(found.draws), dict(found.how)
    ours = measured[: len(own)]
    seen = _exchange_observations([*zip(own, ours, strict=True)], found, machine)
    exchange = sample_posterior(found.draws, seen, _exchange_prior(key, ours), rng)
    draws |= exchange
    how |= dict.fromkeys(exchange, "measured" if seen else "prior")
    said = {note for each in used for note in (*each.pooled, *each.notes)}
    return ProfileGroup(
        key=key,
        measured=measured,
        parameters={name: _parameter(values, how[name]) for name, values in draws.items()},
        spread=_launch_spread(used),
        held_out=[],
        notes=[
            *found.notes,
            *_policy_notes(key),
            *_core_notes(key, machine),
            *sorted(said),
        ],
    )


def _helps(other: Observation) -> bool:
    """Say whether a configuration of another strategy shows computing: it has one worker, or a breakdown."""
    return strategy_named(other.key.strategy).single_baseline or _was_taken_apart(other)


def _of_like_company(own: Sequence[Observation], helping: Sequence[Observation]) -> list[Observation]:
    """Return the configurations of other strategies whose workers compute beside the same processes as the own ones.

    Workers are slowed by what runs beside them, and a parameter server computes too: where a strategy's own workers
    were broken down together, only these say how much; else those of strategies that have servers as it has, or none.
    All are returned where nothing else was broken down.
    """
    together = any(each.deployment.workers > 1 and _was_taken_apart(each) for each in own)
    servers = any(each.deployment.servers for each in own)
    alike = [
        each
        for each in helping
        if each.deployment.workers == 1 or (not together and bool(each.deployment.servers) == servers)
    ]
    return alike if any(map(_was_taken_apart, [*own, *alike])) else list(helping)


def _was_taken_apart(each: Observation) -> bool:
    return any(one.phases.get("backward") is not None for one in each.launch_phases)


def _policy_notes(key: GroupKey) -> list[str]:
    if strategy_named(key.strategy).single_baseline or has_own_policy(key.framework, key.strategy):
        return []
    return [f"how {key.framework} exchanges with {key.strategy} is not written down; the plainest way is assumed"]


def _core_notes(key: GroupKey, machine: Machine) -> list[str]:
    if key.device == "cuda" or machine.cores is not None:
        return []
    return ["how many cores the machine has is not known: no workers are taken to share them"]


def _best_source(links: Sequence[LinkEstimate]) -> LinkSource:
    sources = {link.source for link in links}
    return next((source for source in LINK_SOURCES if source in sources), "prior")


def _exchange_prior(key: GroupKey, measured: Sequence[MeasuredConfiguration]) -> ExchangePrior:
    """Return the prior of the factors on the links that are in use, and of the overlap efficiency."""
    overlap, overlap_spread = overlap_prior(own_policy=has_own_policy(key.framework, key.strategy))
    outer, inner = _links_between(measured), _links_inside(measured)
    means, spreads = [0.0, 0.0, overlap], [*_widest(outer or inner), overlap_spread]
    if outer and inner:
        return ExchangePrior(
            (*OUTER, OVERLAP, *INNER), np.array([*means, 0.0, 0.0]), np.array([*spreads, *_widest(inner)])
        )
    names = INNER if inner else OUTER
    return ExchangePrior((*names, OVERLAP), np.array(means), np.array(spreads))


def _links_between(measured: Sequence[MeasuredConfiguration]) -> list[LinkEstimate]:
    return [each.link for each in measured if each.link is not None and each.deployment.crosses]


def _links_inside(measured: Sequence[MeasuredConfiguration]) -> list[LinkEstimate]:
    """Return the links between the workers of one host, of single hosts and of those that exchange with others."""
    inside = (each.inner if each.deployment.crosses else each.link for each in measured)
    return [link for link in inside if link is not None]


def _widest(links: Sequence[LinkEstimate]) -> LinkSpread:
    source = _best_source(links)
    spreads = [prior_spread(link) for link in links if link.source == source]
    latency, rate = np.max(spreads, axis=0) if spreads else PRIOR_SPREADS[source]
    return float(latency), float(rate)


def _exchange_observations(
    own: Sequence[tuple[Observation, MeasuredConfiguration]], found: ComputeFit, machine: Machine
) -> list[ExchangeObservation]:
    ours = [measured for _, measured in own]
    sources = {True: _best_source(_links_between(ours)), False: _best_source(_links_inside(ours))}
    return [
        ExchangeObservation(
            model=step_model_of(
                each.key,
                each.deployment,
                measured.link,
                contention_of(each.deployment, each.key, machine),
                ours,
                measured.inner,
                measured.effects,
            ),
            step_s=measured.step_s,
            error=float(np.hypot(found.spread / np.sqrt(len(each.steps_s)), 0.01)),
            communication_s=_mean([one.communication_s for one in each.launch_phases]),
        )
        for each, measured in own
        if has_policy(each.key.strategy) and measured.link and measured.link.source == sources[each.deployment.crosses]
    ]


def _effects(each: Observation, observations: Sequence[Observation]) -> MachineEffects:
    alone = [
        other.preemptions
        for other in observations
        if other.deployment.workers == 1 and other.preemptions is not None and other.key.computes_as(each.key)
    ]
    several = each.preemptions if each.deployment.workers > 1 else None
    return effects_of(several, alone, token_buckets=each.token_buckets)


def _measured(
    each: Observation, net: Sequence[NetLink], machine: Machine, effects: MachineEffects
) -> MeasuredConfiguration:
    logs = np.log(each.steps_s)
    middle = float(logs.mean())
    if len(logs) > 1:
        extrapolation = float(t_quantile(len(logs) - 1, LEVEL) * logs.std(ddof=1) / np.sqrt(len(logs)))
    else:
        extrapolation = float(t_quantile(1, LEVEL) * USUAL_LAUNCH_SPREAD)
    names = dict.fromkeys(name for one in each.launch_phases for name in one.phases)
    return MeasuredConfiguration(
        trial=each.trial,
        strategy=each.key.strategy,
        deployment=each.deployment,
        step_s=float(np.exp(middle)),
        low_s=float(np.exp(middle - extrapolation)),
        high_s=float(np.exp(middle + extrapolation)),
        launches=len(each.steps_s),
        ablation_launches=len(each.launch_phases),
        phases={name: _mean([one.phases.get(name) for one in each.launch_phases]) for name in names},
        link=measured_link(each, net, machine),
        inner=inner_link(each.key, each.deployment, net, machine),
        pieces=list(next((one.pieces for one in each.launch_phases if one.pieces), ())),
        effects=effects,
        device_bytes=each.device_bytes,
    )


def _launch_spread(observations: Sequence[Observation]) -> float:
    """Return the relative standard deviation between launches of one configuration, with a prior of one launch.

    It is at least what the other trials of the folder make likely, as in reports.
    """
    squares = sum(float(np.sum((np.log(each.steps_s) - np.mean(np.log(each.steps_s))) ** 2)) for each in observations)
    freedom = sum(len(each.steps_s) - 1 for each in observations)
    pooled = [each.pooled_spread**2 for each in observations if each.pooled_spread is not None]
    own = (USUAL_LAUNCH_SPREAD**2 + squares) / (1 + freedom)
    return float(np.sqrt(max(own, float(np.mean(pooled)) if pooled else 0.0)))


def _parameter(draws: Array, how: How) -> FittedParameter:
    low, high = bounds(draws)
    return FittedParameter(
        value=_rounded(float(np.median(draws))),
        low=_rounded(low),
        high=_rounded(high),
        how=how,
        draws=[_rounded(value) for value in draws.tolist()],
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def machine_of(facts: Mapping[str, object]) -> Machine:
    """Return the machine of a results folder from its fingerprint."""
    cores, gpus, cpu = facts.get("cores"), facts.get("gpus"), facts.get("cpu")
    return Machine(
        cpu=str(cpu) if cpu else None,
        cores=cores if isinstance(cores, int) and cores > 0 else None,
        gpus=len(gpus) if isinstance(gpus, list) else 0,
        gpu=str(gpus[0].get("name")) if isinstance(gpus, list) and gpus and isinstance(gpus[0], dict) else None,
    )
