"""The model with a load-imbalance factor against measured steps, on even hosts and on hosts that are slowed.

Source: V. Kavarakuntla et al., "Performance analysis of distributed deep learning frameworks in a multi-GPU
environment", IUCC 2021. Its abstract names the factor without a formula; here it is the usual one, the longest
computing of a step over the mean one, so that ``t = LIF * mean_i(t_comp,i) + t_c``.
"""

from collections.abc import Iterator, Mapping, Sequence

from steptime.catalog.choices import strategy_named
from steptime.measurements.ablation.form import Imbalance
from steptime.measurements.model_form import FrameworkImbalance, ModelComparison, ModelledStep
from steptime.measurements.summary_form import TrialSummary
from steptime.predict.model.imbalance import slowdown
from steptime.predict.model_comparison import (
    best_models,
    geometric_mean,
    measured_mean,
    model_errors,
    modelled_step,
)
from steptime.study.trial import Trial

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
