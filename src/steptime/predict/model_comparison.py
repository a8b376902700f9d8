"""Performance models of published papers against the measured steps of a study: errors, limits and remedies."""

from collections.abc import Iterable, Sequence

import numpy as np

from steptime.measurements.interval import LEVEL, t_quantile
from steptime.measurements.json_form import IntervalOverLaunches
from steptime.measurements.model_form import ModelError, ModelledStep
from steptime.measurements.summary_form import TrialSummary


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
