"""From a profile and a wish to predictions with intervals, or to refusals that name the measurement that is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptime.datasets.builtins import BUILTINS
from steptime.model.devices import transfer
from steptime.model.layer_work import work_of
from steptime.predict.extrapolation import Reach, beyond
from steptime.predict.fit import early_of, scene_of
from steptime.predict.importance_sampling import NAMES
from steptime.predict.observation import Key, Setting
from steptime.predict.parameter_draws import DRAWS, Array, bounds
from steptime.predict.profile import Group, Measured, Profile
from steptime.predict.query import Wish, check_sizes
from steptime.predict.step_model import play, step_of
from steptime.predict.targets import Target, targets
from steptime.predict.topology import Place, Refusal, group_of, place, spread_draws
from steptime.predict.workload_graph import costs_of
from steptime.study.strategies import strategy_named
from steptime.workloads.costs import Costs
from steptime.workloads.table import build_workload

_SEED = 7
BASELINE = "1 worker with the same batch per worker"
_KNOWN_BY = {
    "forward": "forward_per_sample_s",
    "backward": "backward_per_sample_s",
    "update": "update_s",
    "input_wait": "input_share",
    "sync_wait": "persistent",
    "comm_exposed": "hidden",
    "comm_hidden": "hidden",
    "residual": "timing",
}


@dataclass(frozen=True)
class Interval:
    """A value with its interval of 90 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Phase:
    """Seconds of a step."""

    value_s: float
    low_s: float
    high_s: float
    how: str
    """As of the parameter behind it, see ``form.How``."""


@dataclass(frozen=True)
class Prediction:
    """One configuration that was asked for."""

    key: Key
    wish: Wish
    workers: int
    setting: Setting | None
    step_s: Interval | None
    throughput: Interval | None
    """Samples per second over all workers."""
    efficiency: Interval | None
    """Throughput per worker over that of ``BASELINE``, which is predicted too."""
    epoch_s: Interval | None
    phases: Mapping[str, Phase | None]
    dominant: str | None
    reach: float | None
    refused: str | None
    notes: tuple[str, ...] = ()


def predict(profile: Profile, workers: Sequence[int], wishes: Sequence[Wish]) -> list[Prediction]:
    """Return a prediction for each model, wish and number of workers.

    Raises UsageError with every size that cannot be.
    """
    check_sizes(workers, wishes)
    return [
        predict_one(profile, target, wish, count)
        for wish in wishes
        for target in targets(profile, wish)
        for count in workers
    ]


def predict_one(profile: Profile, target: Target, wish: Wish, workers: int) -> Prediction:
    """Return the prediction of one configuration, refused where the data cannot support it."""
    try:
        return _predicted(profile, target, wish, workers)
    except Refusal as refusal:
        return Prediction(target.key, wish, workers, None, None, None, None, None, {}, None, None, refused=str(refusal))


def _predicted(profile: Profile, target: Target, wish: Wish, workers: int) -> Prediction:
    group = group_of(target)
    if strategy_named(target.key.strategy).single_baseline and workers > 1:
        message = (
            f"only one worker of {target.key.framework} was measured, which exchanges with nobody; ask for a "
            "strategy=allreduce with interconnect.bandwidth=RATE, or measure workers: 2"
        )
        raise Refusal(message)
    where = place(profile, target, wish, workers)
    cost = costs_of(target.key.workload, target.key.input_shape, target.key.classes)
    rng = np.random.default_rng(_SEED)
    parameters, scaled = _parameters(target, group, where, cost, rng)
    reach = _reach(group, where, scaled)
    error = np.exp(np.hypot(reach.deviation, group.spread) * rng.standard_normal(DRAWS))
    seen = [each for each in _known(target) if each.strategy == target.key.strategy]
    phases = play(parameters, scene_of(target.key, where.setting, where.link, where.crowd, seen))
    step = step_of(phases)
    alone = replace(where.setting, workers=1, servers=0, hosts=1, workers_per_host=1)
    baseline = step_of(play(parameters, scene_of(target.key, alone, None, (1, where.crowd[1]))))
    samples = wish.samples or _samples(target.key)
    rate = workers * where.setting.batch
    shown = {name: _phase(name, values, group, target) for name, values in phases.items()}
    return Prediction(
        key=target.key,
        wish=wish,
        workers=workers,
        setting=where.setting,
        step_s=_interval(step, error),
        throughput=_interval(rate / step, 1 / error),
        efficiency=_interval(baseline / step, np.ones(DRAWS) if workers == 1 else 1 / error),
        epoch_s=_interval(samples / rate * step, error) if samples else None,
        phases=shown,
        dominant=max(
            (name for name, phase in shown.items() if phase and name != "comm_hidden"),
            key=lambda name: phases[name].mean(),
        ),
        reach=reach.factor,
        refused=None,
        notes=tuple(group.notes),
    )


def _known(target: Target) -> list[Measured]:
    """Return measured steps of the very workload that is asked for."""
    groups = [group for group in (target.exchange, target.computing) if group is not None]
    return [
        each
        for group in groups
        if (group.key.workload, group.key.input_shape) == (target.key.workload, target.key.input_shape)
        for each in group.measured
    ]


def _parameters(
    target: Target, group: Group, where: Place, cost: Costs, rng: np.random.Generator
) -> tuple[dict[str, Array], float]:
    """Return draws of all parameters, and by how much computing was scaled to another workload."""
    found = {name: parameter.array for name, parameter in group.parameters.items()}
    source = target.exchange
    early, early_spread = early_of(target.key)
    believed = {
        "start": np.ones(DRAWS),
        "rate": np.ones(DRAWS),
        "hidden": 1 / (1 + np.exp(-early - early_spread * rng.standard_normal(DRAWS))),
    }
    for name in NAMES:
        holds = source is not None and (name == "hidden" or where.factors)
        found[name] = source.parameters[name].array if source is not None and holds else believed[name]
    found["start"] = found["start"] * spread_draws(where.spread[0], rng, DRAWS)
    found["rate"] = found["rate"] * spread_draws(where.spread[1], rng, DRAWS)
    if target.key.loader != group.key.loader:
        found["input_per_sample_s"] = np.zeros(DRAWS)
    if target.carried is not None:
        found = _elsewhere(found, target, rng)
    if target.key.workload == group.key.workload and target.key.input_shape == group.key.input_shape:
        return found, 1.0
    return _scaled(found, group, cost)


def _elsewhere(found: dict[str, Array], target: Target, rng: np.random.Generator) -> dict[str, Array]:
    """Carry computing to another device by the data sheets of both, with the doubt of such a factor."""
    here, there = target.carried or (None, None)
    if here is None or there is None:
        return found
    key = target.key
    layers = work_of(build_workload(key.workload, key.input_shape, key.classes)).layers
    moved = transfer(
        [layer.forward_flops + layer.backward_flops for layer in layers],
        [3.0 * layer.traffic for layer in layers],  # there once, and back with two gradients
        here,
        there,
        key.precision,
    )
    doubt = np.log(moved.high / moved.low) / (2 * 1.645)
    factor = moved.factor * spread_draws(doubt, rng, DRAWS)
    passes = [f"{name}_{part}" for name in ("forward", "backward") for part in ("fixed_s", "per_sample_s")]
    return found | {name: found[name] * factor for name in (*passes, "update_s")}


def _scaled(found: dict[str, Array], group: Group, cost: Costs) -> tuple[dict[str, Array], float]:
    """Scale computing to another workload: passes by arithmetic, what is fixed by layers, the update by weights."""
    known = costs_of(group.key.workload, group.key.input_shape, group.key.classes)
    layers = len(cost.layers) / len(known.layers)
    scaled = dict(found)
    for name, ratio in (
        ("forward", cost.forward_flops / known.forward_flops),
        ("backward", cost.backward_flops / known.backward_flops),
    ):
        scaled[f"{name}_fixed_s"] = found[f"{name}_fixed_s"] * layers
        scaled[f"{name}_per_sample_s"] = found[f"{name}_per_sample_s"] * ratio
    scaled["update_s"] = found["update_s"] * (cost.parameters / known.parameters)
    return scaled, max(cost.forward_flops / known.forward_flops, known.forward_flops / cost.forward_flops, 1.0 + 1e-9)


def _reach(group: Group, where: Place, scaled: float) -> Reach:
    setting = where.setting
    models = where.nearest or group.measured
    crosses = setting.crosses and not any(each.setting.crosses for each in models)
    rates = [each.link.rate for each in where.nearest if each.link and each.link.source != "believed"]
    return Reach(
        workers=beyond(setting.workers, [*(each.setting.workers for each in models), 1]),
        batch=beyond(setting.batch, [each.setting.batch for each in group.measured]),
        bandwidth=beyond(where.link.rate, rates) if where.link and rates else 1.0,
        workload=scaled,
        crosses=crosses,
    )


def _interval(values: Array, error: Array) -> Interval:
    low, high = bounds(values * error)
    middle = float(np.median(values))
    return Interval(middle, min(low, middle), max(high, middle))


def _phase(name: str, values: Array, group: Group, target: Target) -> Phase | None:
    if name == "h2d" and target.key.device != "cpu":
        return None  # it is part of what was measured as computing, and nothing here tells it apart
    low, high = bounds(values)
    middle = float(np.median(values))
    nothing = not values.any()
    source = group.parameters.get(_KNOWN_BY.get(name, ""))
    how = "measured" if nothing or source is None else source.how
    return Phase(middle, low, high, how)


def _samples(key: Key) -> int | None:
    return BUILTINS[key.dataset].samples if key.dataset and key.dataset in BUILTINS else None
