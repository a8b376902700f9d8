"""Performance models of published papers against the measured steps of a study: errors, limits and remedies.

The model with a load-imbalance factor against measured steps, on even hosts and on hosts that are slowed.

Source: V. Kavarakuntla et al., "Performance analysis of distributed deep learning frameworks in a multi-GPU
environment", IUCC 2021. Its abstract names the factor without a formula; here it is the usual one, the longest
computing of a step over the mean one, so that ``t = LIF * mean_i(t_comp,i) + t_c``.

The S-SGD family of models against measured steps, the part that limits a step, and what each remedy would gain.

The parts of a step are those of the trial's own breakdown, as the papers take theirs from traces of each system; the
models differ in what they let run at the same time. Layers share the backward pass by their arithmetic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from steptime.analysis.ablation.form import Imbalance
from steptime.analysis.model_form import (
    FrameworkImbalance,
    Limit,
    ModelComparison,
    ModelError,
    ModelledStep,
    Remedy,
)
from steptime.analysis.summary_form import TrialSummary
from steptime.catalog.choices import strategy_named
from steptime.catalog.workloads.table import build_workload
from steptime.errors import SteptimeError
from steptime.fitting.breakdown_scale import timed_observations
from steptime.fitting.fit import machine_of
from steptime.fitting.links import measured_link, net_links
from steptime.fitting.observation import Observation
from steptime.fitting.step_model import graph_of
from steptime.model.compute import layer_shares, slowdown, work_of
from steptime.model.policies import has_policy
from steptime.model.synchronous_sgd import MODELS, LinearCost, StepParts, merged, wait_free
from steptime.phases import PHASES
from steptime.results.json_form import IntervalOverLaunches
from steptime.results.store import Store
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.study.trial import Trial


def measured_mean(trial: TrialSummary) -> IntervalOverLaunches | None:
    """Return the step time; None without a timed step."""
    found = trial.step_time_s
    return None if found.mean is None else IntervalOverLaunches(value=found.mean, low=found.low, high=found.high)


def modelled_step(
    trial: TrialSummary, model: str, case: str, seconds: float, measured: IntervalOverLaunches
) -> ModelledStep:
    """Return one trial's step by one model."""
    return ModelledStep(
        trial=trial.id,
        model=model,
        case=case,
        modelled_s=seconds,
        measured_s=measured,
        ratio=seconds / measured.value,
    )


def model_errors(steps: Iterable[ModelledStep]) -> list[ModelError]:
    """Return the errors of each model in each case, in the order of ``steps``."""
    groups: dict[tuple[str, str], list[float]] = {}
    for each in steps:
        groups.setdefault((each.case, each.model), []).append(each.ratio)
    return [
        ModelError(
            model=model,
            case=case,
            trials=len(ratios),
            ratio=geometric_mean(ratios),
            median_error=float(np.median(np.abs(np.array(ratios) - 1.0))),
            largest_error=float(np.max(np.abs(np.array(ratios) - 1.0))),
        )
        for (case, model), ratios in groups.items()
    ]


def best_models(errors: Sequence[ModelError]) -> dict[str, str]:
    """Return for each case the model with the smallest median error; the first of equals."""
    best: dict[str, ModelError] = {}
    for each in errors:
        if each.case not in best or each.median_error < best[each.case].median_error:
            best[each.case] = each
    return {case: each.model for case, each in best.items()}


def geometric_mean(values: Sequence[float]) -> IntervalOverLaunches:
    """Return the geometric mean of positive numbers with the interval that their spread gives it."""
    found = arithmetic_mean([float(np.log(value)) for value in values])
    low, high = (None if bound is None else float(np.exp(bound)) for bound in (found.low, found.high))
    return IntervalOverLaunches(
        value=float(np.exp(found.value)), low=low, high=high, least=min(values), most=max(values)
    )


def arithmetic_mean(values: Sequence[float]) -> IntervalOverLaunches:
    """Return the mean of numbers with the interval that their spread gives it; one alone has no interval."""
    array = np.array(values)
    mean = float(array.mean())
    least, most = min(values), max(values)
    if len(array) == 1:
        return IntervalOverLaunches(value=mean, least=least, most=most)
    half_width = float(t_quantile(len(array) - 1, LEVEL) * array.std(ddof=1) / np.sqrt(len(array)))
    return IntervalOverLaunches(value=mean, low=mean - half_width, high=mean + half_width, least=least, most=most)


MEAN_WORKER = "mean worker"
MEASURED_FACTOR = "measured factor"
STATED_SHARES = "stated shares"
"""The step of the even hosts with the processor shares that the slowed ones were given: nothing slowed is measured."""
EVEN = "even hosts"
SLOWED = "slowed hosts"


def compare_imbalance(summaries: Sequence[TrialSummary], trials: Mapping[str, Trial]) -> ModelComparison:
    """Return the models with and without the factor against the steps of all synchronous trials of several workers.

    Args:
        summaries: of a study with breakdowns.
        trials: by id.
    """
    known = {each.id: each for each in summaries if _fits(each)}
    steps = [step for each in known.values() for step in _modelled(each, trials[each.id], known)]
    factors: dict[tuple[str, str], list[float]] = {}
    for each in known.values():
        if each.imbalance:
            factors.setdefault((each.framework, _case(trials[each.id])), []).append(each.imbalance.factor)
    errors = model_errors(steps)
    return ModelComparison(
        family="load_imbalance",
        steps=steps,
        errors=errors,
        best=best_models(errors),
        imbalance=[
            FrameworkImbalance(framework=framework, case=case, trials=len(values), factor=geometric_mean(values))
            for (framework, case), values in sorted(factors.items())
        ],
        left_out=[
            f"{each.id}: no breakdown of its step"
            for each in summaries
            if each.id not in known and each.workers > 1 and each.status == "ok"
        ],
    )


def _fits(each: TrialSummary) -> bool:
    synchronous = strategy_named(each.strategy).synchronous
    return each.status == "ok" and synchronous and each.imbalance is not None and measured_mean(each) is not None


def _modelled(each: TrialSummary, trial: Trial, known: Mapping[str, TrialSummary]) -> Iterator[ModelledStep]:
    measured, imbalance = measured_mean(each), each.imbalance
    if measured is None or imbalance is None:  # pragma: no cover - _fits
        return
    case, rest, mean = _case(trial), _beyond_computing(each), _mean_compute(imbalance)
    yield modelled_step(each, MEAN_WORKER, case, mean + rest, measured)
    yield modelled_step(each, MEASURED_FACTOR, case, imbalance.factor * mean + rest, measured)
    even = known.get(_on_even_hosts(trial).id)
    if case == SLOWED and even is not None and even.imbalance is not None:
        factor = even.imbalance.factor * slowdown(_shares(trial))
        seconds = factor * _mean_compute(even.imbalance) + _beyond_computing(even)
        yield modelled_step(each, STATED_SHARES, case, seconds, measured)


def _mean_compute(imbalance: Imbalance) -> float:
    return sum(worker.compute_s.value for worker in imbalance.workers) / len(imbalance.workers)


def _beyond_computing(each: TrialSummary) -> float:
    """Return the seconds that a step takes besides computing and waiting for others; less than none is none."""
    phases = each.phases or {}
    found = (phases.get(name) for name in ("input_wait", "h2d", "comm_exposed"))
    return sum(max(0.0, phase.value_s) for phase in found if phase is not None)


def _shares(trial: Trial) -> list[float]:
    """Return the processor share of each worker's host."""
    cluster = trial.cluster
    if cluster is None:
        return [1.0] * trial.workers
    return [cluster.hosts[cluster.host_of("worker", rank)].cpu_share for rank in range(trial.workers)]


def _case(trial: Trial) -> str:
    return SLOWED if min(_shares(trial)) < 1.0 else EVEN


def _on_even_hosts(trial: Trial) -> Trial:
    cluster = trial.cluster
    if cluster is None:
        return trial
    hosts = tuple(host.model_copy(update={"cpu_share": 1.0}) for host in cluster.hosts)
    return trial.model_copy(update={"cluster": cluster.model_copy(update={"hosts": hosts})})


_ALL = "several workers"
"""The case of all trials of more than one worker."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    part: tuple(phase.name for phase in PHASES if phase.part == part)
    for part in dict.fromkeys(phase.part for phase in PHASES if phase.part)
}
"""Of a step, by the phases that they add up."""


def compare_s_sgd(summaries: Sequence[TrialSummary], trials: Mapping[str, Trial], store: Store) -> ModelComparison:
    """Return every model of the family against the steps of all synchronous trials that have a breakdown."""
    observed = {each.trial: each for each in timed_observations(store)}
    costs = _starts(observed, store)
    steps: list[ModelledStep] = []
    parts: dict[str, StepParts] = {}
    left_out: list[str] = []
    synchronous = [each for each in summaries if strategy_named(each.strategy).synchronous]
    chosen = sorted((each for each in synchronous if each.status == "ok"), key=lambda each: each.workers)
    for each in chosen:
        measured = measured_mean(each)
        found = _parts(each, trials[each.id], observed.get(each.id), costs)
        if measured is None or found is None:
            left_out.append(f"{each.id}: no breakdown into computing and communication")
            continue
        parts[each.id] = found
        for name, model in MODELS.items():
            steps.append(modelled_step(each, name, _ssgd_case(each), model(found), measured))
    errors = model_errors([*steps, *(step.model_copy(update={"case": _ALL}) for step in steps if _several(step.case))])
    modelled = [each for each in chosen if each.id in parts]
    return ModelComparison(
        family="s_sgd",
        steps=steps,
        errors=errors,
        best=best_models(errors),
        limits=list(_limits(modelled)),
        remedies=list(_remedies([each for each in modelled if each.workers > 1], parts)),
        left_out=left_out,
    )


def _ssgd_case(each: TrialSummary) -> str:
    return f"{each.workers} worker{'s'[: each.workers > 1]}"


def _several(case: str) -> bool:
    return case != "1 worker"


def _starts(observed: Mapping[str, Observation], store: Store) -> dict[str, float]:
    """Return the seconds that a message takes before its bytes: 2(p-1) latencies of a ring, 2 of a server."""
    machine, net = machine_of(store.machine() or {}), net_links(store.net())
    found = {}
    for name, each in observed.items():
        link = measured_link(each, net, machine)
        rounds = 2 if strategy_named(each.key.strategy).servers else 2 * (each.deployment.workers - 1)
        found[name] = 0.0 if link is None else rounds * link.latency_s
    return found


def _parts(
    each: TrialSummary, trial: Trial, observation: Observation | None, starts: Mapping[str, float]
) -> StepParts | None:
    phases, taken_apart = each.phases or {}, each.breakdown
    forward, backward = (phases.get(name) for name in ("forward", "backward"))
    if taken_apart is None or forward is None or backward is None or observation is None:
        return None
    exchange = 0.0
    if each.workers > 1:
        whole = taken_apart.overlap.communication_s if taken_apart.overlap else phases.get("comm_exposed")
        if whole is None:
            return None
        exchange = max(0.0, whole.value_s)
    work = work_of(build_workload(trial.workload, trial.input_shape, trial.classes))
    shares = layer_shares(
        [layer.forward_flops for layer in work.layers],
        [layer.backward_flops for layer in work.layers],
        [layer.traffic for layer in work.layers],
    )
    with_weights = [place for place, layer in reversed(list(enumerate(work.layers))) if layer.gradient_bytes]
    ready = np.diff(np.concatenate([[0.0], shares.passed[with_weights]]))
    ready[-1] += 1.0 - ready.sum()
    sizes = np.array([work.layers[place].gradient_bytes for place in with_weights], float)
    sizes = sizes if each.workers > 1 else np.zeros_like(sizes)
    loading = taken_apart.input_s or phases.get("input_wait")
    return StepParts(
        loading=_seconds(loading),
        copy=_seconds(phases.get("h2d")),
        forward=max(0.0, forward.value_s),
        backward=max(0.0, backward.value_s) * ready,
        update=_seconds(phases.get("update")),
        exchange=exchange,
        sizes=sizes,
        cost=_cost(exchange, sizes, starts.get(each.id, 0.0), _own_messages(observation)),
    )


def _own_messages(observation: Observation) -> int:
    """Return how many messages the framework sends in a step; fused ones count as one."""
    if not has_policy(observation.key.strategy):
        return 1
    try:
        graph = graph_of(observation.key, observation.deployment)
    except SteptimeError:
        return 1
    return 1 if graph.plan.fusion is not None else max(1, len(graph.messages))


def _cost(exchange: float, sizes: np.ndarray, start: float, messages: int) -> LinearCost:
    """Return the line through the framework's own exchange: its starts, and what they leave for the bytes."""
    whole = float(sizes.sum())
    if not whole:
        return LinearCost(0.0, 0.0)
    begun = min(start, exchange / messages)
    return LinearCost(begun, (exchange - messages * begun) / whole)


def _seconds(phase: object) -> float:
    return max(0.0, float(getattr(phase, "value_s", 0.0)))


def _limits(summaries: Sequence[TrialSummary]) -> Iterator[Limit]:
    for case in dict.fromkeys(_ssgd_case(each) for each in sorted(summaries, key=lambda each: each.workers)):
        members = [each for each in summaries if _ssgd_case(each) == case]
        shares = {part: [_share(each, names) for each in members] for part, names in _PARTS.items()}
        part = max(shares, key=lambda name: float(np.mean(shares[name])))
        yield Limit(case=case, trials=len(members), part=part, share=arithmetic_mean(shares[part]))


def _share(each: TrialSummary, names: Sequence[str]) -> float:
    return sum(_phase(each, name) for name in names) / _step(each)


def _phase(each: TrialSummary, name: str) -> float:
    return _seconds((each.phases or {}).get(name))


def _step(each: TrialSummary) -> float:
    assert each.breakdown is not None  # noqa: S101 - only trials with a breakdown come here; for the type checker
    return each.breakdown.step_s.value_s


def _remedies(summaries: Sequence[TrialSummary], parts: Mapping[str, StepParts]) -> Iterator[Remedy]:
    for name, saved in _SAVINGS.items():
        speedups = {each.id: _step(each) / max(_step(each) - saved(each, parts[each.id]), 1e-9) for each in summaries}
        if speedups:
            most = max(speedups, key=lambda trial: speedups[trial])
            yield Remedy(
                remedy=name,
                case=_ALL,
                trials=len(speedups),
                speedup=geometric_mean(list(speedups.values())),
                most=speedups[most],
                most_trial=most,
            )


def _unhidden(each: TrialSummary, parts: StepParts) -> float:
    exposed = _phase(each, "comm_exposed")
    return exposed - min(exposed, max(0.0, parts.exchange - float(parts.backward.sum())))


def _unmerged(each: TrialSummary, parts: StepParts) -> float:
    """Return the seconds of the measured step that merging saves, in proportion to the modelled one."""
    return _step(each) * max(0.0, 1.0 - merged(parts) / wait_free(parts))


_SAVINGS: Mapping[str, Callable[[TrialSummary, StepParts], float]] = {
    "links without limit": lambda each, _: _phase(each, "comm_exposed"),
    "communication hidden behind the backward pass": _unhidden,
    "messages of layers merged": _unmerged,
    "workers that never wait for each other": lambda each, _: _phase(each, "sync_wait"),
    "batches that are always there": lambda each, _: _phase(each, "input_wait"),
    "an update that takes no time": lambda each, _: _phase(each, "update"),
}
"""Seconds that a remedy would save of a measured step."""
