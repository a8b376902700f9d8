"""Predicting: from a profile and a query to predictions with intervals, or to refusals that name what to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import ceil, inf, isfinite

import numpy as np

from steptime.analysis.work import WorkRates, rates_of
from steptime.catalog.choices import strategy_named
from steptime.datasets.builtins import BUILTINS
from steptime.fitting.contention import contention_of, step_model_of
from steptime.fitting.observation import BUCKET, Deployment, GroupKey, combined
from steptime.fitting.posterior import Array, bounds
from steptime.fitting.profile import LinkEstimate, LinkSource, MeasuredConfiguration, Profile, ProfileGroup
from steptime.fitting.step_model import (
    INNER,
    OUTER,
    Contention,
    StepModel,
    costs_of,
    efficiencies_of,
    graph_of,
    phases_of,
    step_of,
)
from steptime.model.policies import AS_PLANNED, has_policy, ignored_option, option_mistake, strategy_mistake
from steptime.model.worker_spread import expected_maximum
from steptime.phases import HIDDEN, PHASES
from steptime.predict.held_out_test import HeldOutTest, held_out_test
from steptime.predict.launch_deviation import launch_spread, unknown_states
from steptime.predict.next_measurement import RESULTS, STUDY, UncertainPrediction, narrowing
from steptime.predict.parameter_draws import parameters_of
from steptime.predict.query import Query, check_sizes
from steptime.predict.targets import Target, targets
from steptime.predict.topology import Refusal, Topology, topology_of
from steptime.predict.uncertainty import (
    Extrapolation,
    IntervalShares,
    UncertainStep,
    ratio_outside,
    uncertain_step,
)
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.results.peaks import StoredPeaks, peak_of

_SEED = 7
BASELINE = "1 worker with the same batch per worker"
PARTS: Mapping[str, tuple[str, ...]] = {
    "computing": ("forward", "backward", "update"),
    "communication": ("comm_exposed",),
    "waiting": ("sync_wait",),
    "input": ("input_wait", "h2d"),
    "unexplained": ("residual",),
}
"""What a decision distinguishes in a step, by the phases in it."""
_KNOWN_BY = {phase.name: phase.parameter for phase in (*PHASES, HIDDEN)}


@dataclass(frozen=True)
class PredictedPhase:
    """Seconds of a step."""

    value_s: float
    low_s: float
    high_s: float
    how: str
    """As of the parameter behind it, see ``profile.How``."""


@dataclass(frozen=True)
class LinkUsed:
    """The link that a prediction takes between workers: the medians of its draws."""

    rate: float
    """Bytes per second."""
    latency_s: float
    """Of one step of the exchange's algorithm before its bytes."""
    source: LinkSource
    fitted: bool
    """Whether both were corrected by steps that were measured over this link."""


@dataclass(frozen=True)
class StepInputs:
    """What the draws of a step follow from."""

    target: Target
    group: ProfileGroup
    """That knows of its computing."""
    parameters: Mapping[str, Array]
    model: StepModel
    extrapolation: Extrapolation
    topology: Topology


@dataclass(frozen=True)
class Prediction:
    """One configuration that was asked for."""

    key: GroupKey
    query: Query
    workers: int
    deployment: Deployment | None
    step_s: Interval[float, float] | None
    throughput: Interval[float, float] | None
    """Samples per second over all workers."""
    efficiency: Interval[float, float] | None
    """Throughput per worker over that of ``BASELINE``, which is predicted too."""
    epoch_s: Interval[float, float] | None
    """Of whole steps, the last of which may be of fewer samples."""
    phases: Mapping[str, PredictedPhase | None]
    dominant: str | None
    extrapolation: float | None
    refused: str | None
    pop: Mapping[str, Interval[float, float]] | None = None
    """The POP efficiencies of the modelled step, by name; None if workers do not wait for each other."""
    work: WorkRates | None = None
    """What the workers compute per second; None if it is refused."""
    notes: tuple[str, ...] = ()
    shares: IntervalShares | None = None
    """How the interval of the step splits; None if it is refused."""
    held_out: HeldOutTest | None = None
    """How its model did on what was left out of the fit; None if it is refused."""
    link: LinkUsed | None = None
    """The link between workers; None if they exchange nothing, or if the prediction is refused."""
    made_of: Mapping[str, Interval[float, float]] = field(default_factory=dict)
    """The shares of the step by part: computing, communication, waiting, input, and the rest; empty if refused."""
    draws: tuple[Array, Array] | None = field(default=None, compare=False, repr=False)
    """Of efficiency and throughput, each (draws,); None if it is refused."""
    inputs: StepInputs | None = field(default=None, compare=False, repr=False)
    """What its step was drawn from, with the model's error on what was left out of its fit; None if it is refused."""
    study: tuple[str, str] = (STUDY, RESULTS)
    """The path of the study that was fitted, and that of its folder."""

    @property
    def narrowing(self) -> str | None:
        """The one measurement that would narrow the interval of the step most, with its command.

        None if the step is refused, or nothing would narrow it.
        """
        if self.inputs is None or self.deployment is None:
            return None
        target, group, topology = self.inputs.target, self.inputs.group, self.inputs.topology
        spread = launch_spread(launched_group(target, group), self.workers)
        now = UncertainPrediction(self.inputs.parameters, self.inputs.model, self.inputs.extrapolation, spread)
        links = ((OUTER if self.deployment.crosses else INNER, topology.link), (INNER, topology.inner))
        timed = [names for names, link in links if link is not None and link.source == "net"]
        return narrowing(now, target.exchange or group, (self.key, self.deployment), timed, self.study)


def baseline_of(predictions: Sequence[Prediction]) -> str:
    """Return what efficiencies are relative to: a worker that has no servers either."""
    with_servers = any(each.deployment and each.deployment.servers for each in predictions)
    return f"{BASELINE}, without servers" if with_servers else BASELINE


def predict(profile: Profile, workers: Sequence[int], queries: Sequence[Query]) -> list[Prediction]:
    """Return a prediction for each model, query and number of workers.

    Raises UsageError with every size that cannot be.
    """
    check_sizes(workers, queries)
    return [
        predict_one(profile, target, query, count)
        for query in queries
        for target in targets(profile, query)
        for count in workers
    ]


def predict_one(profile: Profile, target: Target, query: Query, workers: int) -> Prediction:
    """Return the prediction of one configuration, refused where the data cannot support it."""
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            found = _predict(profile, target, query, workers)
        _demand_sound(found)
    except Refusal as refusal:
        return Prediction(
            target.key, query, workers, None, None, None, None, None, {}, None, None, refused=str(refusal)
        )
    return found


def _demand_sound(found: Prediction) -> None:
    """Raise Refusal where a number is not finite, a duration not positive, or an interval not in order."""
    for name, interval in (
        ("step time", found.step_s),
        ("throughput", found.throughput),
        ("efficiency", found.efficiency),
        ("epoch time", found.epoch_s),
    ):
        if interval is not None and not 0.0 < interval.low <= interval.value <= interval.high < inf:
            message = (
                f"the models give a {name} of {interval.value:g} ({interval.low:g} to {interval.high:g}) with "
                f"{found.workers} workers, which no step has; ask for a configuration nearer to the measured ones"
            )
            raise Refusal(message)
    phases = {name: phase for name, phase in found.phases.items() if phase is not None}
    wrong = [name for name, each in phases.items() if not -inf < each.low_s <= each.value_s <= each.high_s < inf]
    others = [found.extrapolation or 0.0, *astuple(found.shares or IntervalShares(0.0, 0.0, 0.0))]
    if wrong or not all(map(isfinite, others)):
        message = (
            f"the models give no finite {wrong[0] if wrong else 'uncertainty'} with {found.workers} "
            "workers; ask for a configuration nearer to the measured ones"
        )
        raise Refusal(message)


def model_step(profile: Profile, target: Target, query: Query, workers: int, rng: np.random.Generator) -> StepInputs:
    """Return the performance model of one configuration with the draws of its parameters.

    Raises Refusal where the data cannot support a number.
    """
    group = _computing_group(target)
    if mistake := strategy_mistake(target.key.framework, target.key.strategy):
        raise Refusal(mistake)
    if query.bucket_mb and (
        mistake := option_mistake(target.key.framework, target.key.strategy, BUCKET, query.bucket_mb)
    ):
        raise Refusal(mistake)
    if strategy_named(target.key.strategy).single_baseline and workers > 1:
        message = (
            f"only one worker of {target.key.framework} was measured, which does not communicate; ask for a "
            "strategy=allreduce with interconnect.bandwidth=RATE, or measure workers: 2"
        )
        raise Refusal(message)
    topology = topology_of(profile, target, query, workers)
    deployment = topology.deployment
    _refuse_ignored(target.key, deployment)
    cost = costs_of(target.key.workload, target.key.input_shape, target.key.classes)
    parameters, scaled = parameters_of(target, group, topology, cost, rng)
    extrapolation = _extrapolation(profile, group, topology, scaled)
    seen = [each for each in _measured_workload(target) if each.strategy == target.key.strategy]
    effects = combined([each.effects for each in topology.nearest or group.measured])
    model = step_model_of(target.key, deployment, topology.link, topology.contention, seen, topology.inner, effects)
    return StepInputs(target, group, parameters, model, extrapolation, topology)


def _predict(profile: Profile, target: Target, query: Query, workers: int) -> Prediction:
    rng = np.random.default_rng(_SEED)
    found = model_step(profile, target, query, workers, rng)
    group, parameters, topology = found.group, found.parameters, found.topology
    deployment = topology.deployment
    launched = launched_group(target, group)
    tested = held_out_test(launched, workers)
    extrapolation = replace(found.extrapolation, of_model=tested.deviation)
    uncertain = uncertain_step(parameters, found.model, extrapolation, launch_spread(launched, workers), rng)
    phases, step = uncertain.phases, uncertain.modelled
    alone = replace(deployment, workers=1, servers=0, hosts=1, workers_per_host=1)
    one = Contention(1, topology.contention.processors)
    alone_phases = phases_of(parameters, step_model_of(target.key, alone, None, one))
    baseline = step_of(alone_phases)
    samples = query.samples or _samples(target.key)
    rate = workers * deployment.batch * deployment.accumulation
    steps = ceil(samples / rate) if samples else 0
    throughput = _interval(rate / step, rate / uncertain.seen)
    shares = {name: float(np.mean(values / step)) for name, values in phases.items() if name != HIDDEN.name}
    middle_s = float(np.median(step))
    shown = {
        name: _phase(name, values, shares[name] * middle_s if name in shares else None, group, target)
        for name, values in phases.items()
    }
    return Prediction(
        key=target.key,
        query=query,
        workers=workers,
        deployment=deployment,
        step_s=_interval(step, uncertain.seen),
        throughput=throughput,
        efficiency=_interval(baseline / step, baseline / (step if workers == 1 else uncertain.seen)),
        epoch_s=_interval(steps * step, steps * uncertain.seen) if steps else None,
        phases=shown,
        dominant=max(
            (name for name, phase in shown.items() if phase and name != HIDDEN.name),
            key=lambda name: phases[name].mean(),
        ),
        extrapolation=extrapolation.factor,
        refused=None,
        pop=_pop(target.key.strategy, phases, alone_phases, parameters["persistent"] * expected_maximum(workers)),
        work=_work(profile, target, workers, throughput),
        notes=tuple(filter(None, [*group.notes, unknown_states(launched, workers)])),
        shares=uncertain.shares,
        made_of=_made_of(uncertain),
        inputs=replace(found, extrapolation=extrapolation),
        draws=(baseline / (step if workers == 1 else uncertain.seen), rate / uncertain.seen),
        held_out=tested,
        link=_link_used(topology, topology.link, parameters) if topology.link else None,
    )


def _made_of(uncertain: UncertainStep) -> dict[str, Interval[float, float]]:
    """Return the share of each part of the step; the mean over draws, so that they add up to all of it."""
    step, seen = uncertain.modelled, step_of(uncertain.seen_phases)
    shares = {}
    for part, names in PARTS.items():
        modelled, drawn = (sum(phases[name] for name in names) for phases in (uncertain.phases, uncertain.seen_phases))
        middle, (low, high) = float(np.mean(modelled / step)), bounds(drawn / seen)
        shares[part] = Interval(middle, min(low, middle), max(high, middle))
    return shares


def _link_used(topology: Topology, link: LinkEstimate, parameters: Mapping[str, Array]) -> LinkUsed:
    latency, rate = OUTER if topology.deployment.crosses else INNER
    return LinkUsed(
        rate=float(np.median(link.rate * parameters[rate])),
        latency_s=float(np.median(link.latency_s * parameters[latency])),
        source=link.source,
        fitted=topology.factors,
    )


def _work(profile: Profile, target: Target, workers: int, throughput: Interval[float, float]) -> WorkRates:
    key = target.key
    if target.transferred is None:
        gpus = [profile.machine.gpu] if key.device == "cuda" and profile.machine.gpu else []
        setting = (key.device, key.precision, int(key.threads) if key.device == "cpu" else 0)
        denominator = peak_of(setting, gpus, StoredPeaks(peaks=profile.peaks))
    else:  # the data sheet of another device, by which computing was transferred
        denominator = peak_of(("cuda", key.precision, 0), [target.transferred[1].name], StoredPeaks())
    samples_per_s = IntervalOverLaunches(throughput.value, throughput.low, throughput.high)
    return rates_of((key.workload, key.input_shape, key.classes), workers, samples_per_s, denominator)


def launched_group(target: Target, group: ProfileGroup) -> ProfileGroup:
    """Return the group whose launches those asked for are like: that of the strategy, where several workers ran."""
    return target.exchange if target.exchange is not None and target.exchange.parameters else group


def _refuse_ignored(key: GroupKey, deployment: Deployment) -> None:
    """Raise Refusal where an option of the traffic changes nothing: its prediction would be of a step without it."""
    if deployment.traffic == AS_PLANNED or not has_policy(key.strategy):
        return
    option = ignored_option(graph_of(key, replace(deployment, traffic=AS_PLANNED)), deployment.traffic)
    if option is not None:
        message = f"{option} changes nothing of what {key.framework} sends with {key.strategy}; leave it out"
        raise Refusal(message)


def _computing_group(target: Target) -> ProfileGroup:
    if target.computing is None:
        raise Refusal(target.refused or "nothing was measured")
    return target.computing


def _measured_workload(target: Target) -> list[MeasuredConfiguration]:
    """Return measured steps of the very workload that is asked for."""
    groups = [group for group in (target.exchange, target.computing) if group is not None]
    return [
        each
        for group in groups
        if (group.key.workload, group.key.input_shape) == (target.key.workload, target.key.input_shape)
        for each in group.measured
    ]


def _extrapolation(profile: Profile, group: ProfileGroup, topology: Topology, scaled: float) -> Extrapolation:
    deployment = topology.deployment
    seen = max(contention_of(each.deployment, group.key, profile.machine).turns for each in group.measured)
    models = topology.nearest or group.measured
    crosses = deployment.crosses and not any(each.deployment.crosses for each in models)
    rates = [each.link.rate for each in topology.nearest if each.link and each.link.source != "prior"]
    return Extrapolation(
        workers=ratio_outside(deployment.workers, [*(each.deployment.workers for each in models), 1]),
        batch=ratio_outside(deployment.batch, [each.deployment.batch for each in group.measured]),
        bandwidth=ratio_outside(topology.link.rate, rates) if topology.link and rates else 1.0,
        workload=scaled,
        turns=max(topology.contention.turns / seen, 1.0),
        crosses=crosses,
    )


def _interval(values: Array, seen: Array) -> Interval[float, float]:
    low, high = bounds(seen)
    middle = float(np.median(values))
    return Interval(middle, min(low, middle), max(high, middle))


def _pop(
    strategy: str, phases: Mapping[str, Array], alone: Mapping[str, Array], uneven: Array
) -> dict[str, Interval[float, float]] | None:
    if not strategy_named(strategy).synchronous:
        return None
    return {name: _interval(draws, draws) for name, draws in efficiencies_of(phases, alone, uneven).items()}


def _phase(
    name: str, values: Array, of_step_s: float | None, group: ProfileGroup, target: Target
) -> PredictedPhase | None:
    """Return a phase: its share of the step, on average over draws, so that the phases sum to the step."""
    if name == "h2d" and target.key.device != "cpu":
        return None  # it is part of what was measured as computing, and cannot be separated here
    low, high = bounds(values)
    middle = float(np.median(values)) if of_step_s is None else of_step_s
    nothing = not values.any()
    source = group.parameters.get(_KNOWN_BY[name])
    how = "measured" if nothing or source is None else source.how
    return PredictedPhase(middle, min(low, middle), max(high, middle), how)


def _samples(key: GroupKey) -> int | None:
    return BUILTINS[key.dataset].samples if key.dataset and key.dataset in BUILTINS else None
