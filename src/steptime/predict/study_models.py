"""The performance models and predictions that a study asks for, added to its summary."""

from steptime.measurements.model_form import ModelComparison, StudyPrediction
from steptime.measurements.store import Store
from steptime.measurements.summary_form import Summary
from steptime.predict.imbalance_comparison import compare_imbalance
from steptime.predict.ssgd_comparison import compare_s_sgd
from steptime.predict.study_predictions import predict_study
from steptime.study.paper import PredictionChoice, PublishedEfficiency


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
