"""The performance models and predictions that a study asks for, added to its summary.

Predictions come from a fit of the study's own measurements, beside published efficiencies.
"""

from collections.abc import Mapping, Sequence

from steptime.analysis.model_form import (
    EfficiencyRange,
    ModelComparison,
    PredictedConfiguration,
    PublishedPoint,
    StudyPrediction,
)
from steptime.analysis.summary_form import Summary
from steptime.catalog.choices import strategy_named
from steptime.errors import StoreError
from steptime.fitting.breakdown_scale import timed_observations
from steptime.fitting.fit import fit
from steptime.fitting.observation import Observation
from steptime.predict.model_comparison import compare_imbalance, compare_s_sgd
from steptime.predict.predict import Prediction, predict
from steptime.predict.query import Query
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.results.store import Store
from steptime.study.paper import PredictionChoice, PublishedEfficiency
from steptime.units import format_bit_rate

_BITS = 8


def with_models(summary: Summary, store: Store) -> Summary:
    """Return the summary with what the study's ``performance_models`` and ``predictions`` ask for.

    A study without a trial that ended well has neither.
    """
    study = store.study_json
    families, choice = study.get("performance_models") or [], study.get("predictions")
    if not (families or choice) or not any(trial.status == "ok" for trial in summary.trials):
        return summary
    changes: dict[str, object] = {"models": [_comparison(family, summary, store) for family in families]}
    if choice:
        changes["prediction"] = _prediction(store, choice)
    return summary.model_copy(update=changes)


def _comparison(family: str, summary: Summary, store: Store) -> ModelComparison:
    trials = {trial.id: trial for trial in store.trials()}
    if family == "load_imbalance":
        return compare_imbalance(summary.trials, trials)
    return compare_s_sgd(summary.trials, trials, store)


def _prediction(store: Store, choice: object) -> StudyPrediction:
    published = store.study_json.get("published_efficiency") or []
    return predict_study(
        store,
        PredictionChoice.model_validate(choice),
        [PublishedEfficiency.model_validate(each) for each in published],
    )


def predict_study(
    store: Store, choice: PredictionChoice, published: Sequence[PublishedEfficiency] = ()
) -> StudyPrediction:
    """Return predictions of every measured framework, strategy, workload and batch at the numbers of workers asked for.

    Args:
        store: the results folder, to whose launches a profile is fitted.
        choice: the study's key ``predictions``.
        published: its key ``published_efficiency``.
    """
    try:
        observations = [each for each in timed_observations(store) if _chosen(each, choice)]
    except StoreError as error:
        return StudyPrediction(conditions=_conditions(choice), measured_workers=0, refused=str(error))
    profile = fit(store, observations)
    batches = sorted({each.deployment.batch for each in observations})
    queries = [_query(choice, batch) for batch in batches]
    seen = {(each.key.workload, each.deployment.batch) for each in observations}
    points = [
        _point(each)
        for each in predict(profile, choice.workers, queries)
        if not strategy_named(each.key.strategy).single_baseline
        and (each.key.workload, each.query.batch_per_worker) in seen
    ]
    return StudyPrediction(
        conditions=_conditions(choice),
        measured_workers=max((each.deployment.workers for each in observations), default=0),
        points=points,
        ranges=_ranges(points),
        published=[found for each in published for found in _beside(each, points)],
        refused=None if any(each.refused is None for each in points) else _refusal(points),
    )


def _chosen(each: Observation, choice: PredictionChoice) -> bool:
    single = strategy_named(each.key.strategy).single_baseline
    return (choice.frameworks is None or each.key.framework in choice.frameworks) and (
        single or choice.strategies is None or each.key.strategy in choice.strategies
    )


def _query(choice: PredictionChoice, batch: int) -> Query:
    return Query(
        batch_per_worker=batch,
        workers_per_host=choice.workers_per_host,
        cores_per_host=choice.cores_per_host,
        bandwidth=None if choice.bandwidth is None else choice.bandwidth / _BITS,
    )


def _conditions(choice: PredictionChoice) -> str:
    per_host = choice.workers_per_host
    cores = choice.cores_per_host
    parts = [
        *([f"hosts of {per_host} worker{'s'[: per_host > 1]}"] if per_host else []),
        *([f"{cores} core{'s'[: cores > 1]} of its own for each host"] if cores else []),
        *([f"links of {format_bit_rate(choice.bandwidth)}"] if choice.bandwidth else ["links as measured"]),
    ]
    return ", ".join(parts)


def _point(each: Prediction) -> PredictedConfiguration:
    batch = each.deployment.batch if each.deployment else each.query.batch_per_worker
    return PredictedConfiguration(
        framework=each.key.framework,
        strategy=each.key.strategy,
        workload=each.key.workload,
        batch_per_worker=batch or 0,
        workers=each.workers,
        throughput_samples_per_s=_bounds(each.throughput),
        efficiency=_bounds(each.efficiency),
        refused=each.refused,
    )


def _bounds(found: Interval[float, float] | None) -> IntervalOverLaunches | None:
    return None if found is None else IntervalOverLaunches(value=found.value, low=found.low, high=found.high)


def _ranges(points: Sequence[PredictedConfiguration]) -> list[EfficiencyRange]:
    groups: dict[tuple[str, str, int], dict[float, PredictedConfiguration]] = {}
    for each in points:
        if each.efficiency is not None:
            groups.setdefault((each.framework, each.strategy, each.workers), {})[each.efficiency.value] = each
    return [_range(key, members) for key, members in groups.items()]


def _range(key: tuple[str, str, int], members: Mapping[float, PredictedConfiguration]) -> EfficiencyRange:
    framework, strategy, workers = key
    return EfficiencyRange(
        framework=framework,
        strategy=strategy,
        workers=workers,
        configurations=len(members),
        least=members[min(members)],
        most=members[max(members)],
    )


def _beside(each: PublishedEfficiency, points: Sequence[PredictedConfiguration]) -> list[PublishedPoint]:
    found = []
    for workers, efficiency in sorted(each.efficiency.items()):
        predicted = [
            point
            for point in points
            if point.workers == workers
            and point.efficiency is not None
            and (each.workloads is None or point.workload in each.workloads)
        ]
        inside = [point for point in predicted if _holds(point.efficiency, efficiency)]
        found.append(
            PublishedPoint(
                claim=each.claim,
                source=each.source,
                machine=each.machine,
                workers=workers,
                published=efficiency,
                predicted=predicted,
                inside=len(inside),
            )
        )
    return found


def _holds(found: IntervalOverLaunches | None, value: float) -> bool:
    if found is None or found.low is None or found.high is None:
        return False
    return found.low <= value <= found.high


def _refusal(points: Sequence[PredictedConfiguration]) -> str:
    reasons = list(dict.fromkeys(each.refused for each in points if each.refused))
    return "; ".join(reasons) or "the study measured no configuration that could be predicted"
