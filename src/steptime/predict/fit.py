"""From observations to a profile: one group per framework, strategy, workload, loader, device and precision."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

import steptime
from steptime.measurements.interval import t_reach
from steptime.measurements.store import Store
from steptime.model.collectives import SOCKET_RENDEZVOUS_BYTES, Link
from steptime.model.policies import has_own_policy, has_policy
from steptime.predict.compute_fit import Computed, Crowd, fit_computing
from steptime.predict.importance_sampling import Believed, Seen, explain
from steptime.predict.link_facts import SPREADS, link_behind, net_links, spread_of
from steptime.predict.observation import Key, Observation, Setting
from steptime.predict.parameter_draws import LEVEL, Array, bounds
from steptime.predict.profile import Group, How, LinkFacts, Machine, Measured, NetLink, Parameter, Profile
from steptime.predict.step_model import Scene
from steptime.predict.workload_graph import costs_of, graph_of, readiness
from steptime.study.strategies import strategy_named

_SEED = 20261121
_EARLY = (3.0, 1.0)
"""Where it is written down how a framework exchanges, what the graph lets hide mostly does: logit, and its spread."""
_UNKNOWN_EARLY = (0.0, 2.0)
_USUAL_LAUNCH_SPREAD = 0.02


def fit(store: Store, observations: Sequence[Observation]) -> Profile:
    """Return the profile of a results folder and of what was observed there."""
    machine = _machine(store.machine() or {})
    net = net_links(store.net())
    keys = dict.fromkeys(each.key for each in observations)
    return Profile(
        format_version=1,
        written_by=steptime.__version__,
        results=str(store.study_json.get("name", store.path.name)),
        machine=machine,
        steps=sum(each.step_count for each in observations),
        groups=[fit_group(key, observations, machine, net) for key in keys],
        net=net,
    )


def fit_group(key: Key, observations: Sequence[Observation], machine: Machine, net: Sequence[NetLink]) -> Group:
    """Return the model of the configurations with ``key``; others that compute the same help, see ``_helps``."""
    rng = np.random.default_rng(_SEED)
    own = [each for each in observations if each.key == key]
    helping = [each for each in observations if each.key != key and each.key.computes_as(key) and _helps(each)]
    used = [*own, *helping]
    cost = costs_of(key.workload, key.input_shape, key.classes)
    measured = [_measured(each, net) for each in used]
    crowd = Crowd(lambda each: crowd_of(each.setting, each.key, machine))
    found = fit_computing(used, cost, crowd, rng)
    if found is None:
        reason = (
            "computing cannot be told from communicating, with no configuration of one worker and no breakdown; add "
            "workers: [1, ...] or breakdown: true to the study and run it again"
        )
        return Group(key=key, measured=measured, parameters={}, spread=0.0, held=[], notes=[], refused=reason)
    draws, how = dict(found.draws), dict(found.how)
    ours = measured[: len(own)]
    seen = _seen([*zip(own, ours, strict=True)], found, machine)
    exchanging = explain(found.draws, seen, _believed(key, ours), rng)
    draws |= exchanging
    how |= dict.fromkeys(exchanging, "measured" if seen else "believed")
    return Group(
        key=key,
        measured=measured,
        parameters={name: _parameter(values, how[name]) for name, values in draws.items()},
        spread=_launch_spread(used),
        held=[],
        notes=[*found.notes, *_plainest(key)],
    )


def _helps(other: Observation) -> bool:
    """Say whether a configuration of another strategy tells what a worker computes: one worker, or one taken apart."""
    return strategy_named(other.key.strategy).single_baseline or any(
        one.phases.get("backward") is not None for one in other.launch_phases
    )


def crowd_of(setting: Setting, key: Key, machine: Machine) -> tuple[int, int]:
    """Return how many workers share processors, and how many of them those can run at once."""
    crowd = setting.workers if setting.emulated else min(setting.workers, setting.workers_per_host)
    slots = machine.gpus if key.device == "cuda" else machine.cores // max(key.threads, 1)
    return crowd, max(slots, 1)


def scene_of(
    key: Key, setting: Setting, link: LinkFacts | None, crowd: tuple[int, int], measured: Sequence[Measured] = ()
) -> Scene:
    """Return all that playing a step needs beside parameters; ``measured`` are steps of the same workload."""
    graph = graph_of(key, setting)
    return Scene(
        setting=setting,
        graph=graph,
        ready=readiness(graph, (each.pieces for each in measured if each.strategy == key.strategy)),
        link=None if link is None else _link(link, setting),
        crowd=crowd[0],
        slots=crowd[1],
    )


def _link(facts: LinkFacts, setting: Setting) -> Link:
    # Emulated hosts have sockets between them and nothing else; of others nobody knows.
    rendezvous = SOCKET_RENDEZVOUS_BYTES if setting.emulated else np.inf
    return Link(rate=facts.rate, latency=facts.start_s, rendezvous=rendezvous)


def early_of(key: Key) -> tuple[float, float]:
    """Return what is believed of the share that hides: the mean of its logit, and the standard deviation."""
    return _EARLY if has_own_policy(key.framework, key.strategy) else _UNKNOWN_EARLY


def _plainest(key: Key) -> list[str]:
    if strategy_named(key.strategy).single_baseline or has_own_policy(key.framework, key.strategy):
        return []
    return [f"how {key.framework} exchanges with {key.strategy} is not written down; the plainest way is assumed"]


def _source(measured: Sequence[Measured]) -> Literal["net", "cluster", "believed"]:
    """Return the best that is known of any of the links."""
    sources = {each.link.source for each in measured if each.link}
    return "net" if "net" in sources else "cluster" if "cluster" in sources else "believed"


def _believed(key: Key, measured: Sequence[Measured]) -> Believed:
    source = _source(measured)
    spreads = [spread_of(each.link) for each in measured if each.link and each.link.source == source]
    start, rate = np.max(spreads, axis=0) if spreads else SPREADS[source]
    early, early_spread = early_of(key)
    return Believed(np.array([0.0, 0.0, early]), np.array([start, rate, early_spread]))


def _seen(own: Sequence[tuple[Observation, Measured]], found: Computed, machine: Machine) -> list[Seen]:
    ours = [measured for _, measured in own]
    source = _source(ours)
    return [
        Seen(
            scene=scene_of(each.key, each.setting, measured.link, crowd_of(each.setting, each.key, machine), ours),
            step_s=measured.step_s,
            error=float(np.hypot(found.spread / np.sqrt(len(each.steps_s)), 0.01)),
            communication_s=_mean([one.communication_s for one in each.launch_phases]),
        )
        for each, measured in own
        if has_policy(each.key.strategy) and measured.link and measured.link.source == source
    ]


def _measured(each: Observation, net: Sequence[NetLink]) -> Measured:
    logs = np.log(each.steps_s)
    middle = float(logs.mean())
    if len(logs) > 1:
        reach = float(t_reach(len(logs) - 1, LEVEL) * logs.std(ddof=1) / np.sqrt(len(logs)))
    else:
        reach = float(t_reach(1, LEVEL) * _USUAL_LAUNCH_SPREAD)
    names = dict.fromkeys(name for one in each.launch_phases for name in one.phases)
    return Measured(
        trial=each.trial,
        strategy=each.key.strategy,
        setting=each.setting,
        step_s=float(np.exp(middle)),
        low_s=float(np.exp(middle - reach)),
        high_s=float(np.exp(middle + reach)),
        launches=len(each.steps_s),
        ablation_launches=len(each.launch_phases),
        phases={name: _mean([one.phases.get(name) for one in each.launch_phases]) for name in names},
        link=link_behind(each, net),
        pieces=list(next((one.pieces for one in each.launch_phases if one.pieces), ())),
    )


def _launch_spread(observations: Sequence[Observation]) -> float:
    """Relative standard deviation between launches of one configuration, pooled, with one launch's worth of belief."""
    squares = sum(float(np.sum((np.log(each.steps_s) - np.mean(np.log(each.steps_s))) ** 2)) for each in observations)
    freedom = sum(len(each.steps_s) - 1 for each in observations)
    return float(np.sqrt((_USUAL_LAUNCH_SPREAD**2 + squares) / (1 + freedom)))


def _parameter(draws: Array, how: How) -> Parameter:
    low, high = bounds(draws)
    return Parameter(
        value=_rounded(np.median(draws)),
        low=_rounded(low),
        high=_rounded(high),
        how=how,
        draws=[_rounded(value) for value in draws],
    )


def _rounded(value: float | np.floating) -> float:
    return float(f"{value:.6g}")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _machine(facts: Mapping[str, object]) -> Machine:
    cores, gpus, cpu = facts.get("cores"), facts.get("gpus"), facts.get("cpu")
    return Machine(
        cpu=str(cpu) if cpu else None,
        cores=cores if isinstance(cores, int) and cores > 0 else 1,
        gpus=len(gpus) if isinstance(gpus, list) else 0,
        gpu=str(gpus[0].get("name")) if isinstance(gpus, list) and gpus and isinstance(gpus[0], dict) else None,
    )
