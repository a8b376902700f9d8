"""Held-out errors of a profile: each configuration is left out in turn and predicted from the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptime.measurements.store import Store
from steptime.predict.anomaly import anomaly_of
from steptime.predict.curve.reference_models import NULLS
from steptime.predict.fit import fit, fit_group
from steptime.predict.nccl_output import NcclTable
from steptime.predict.observation import Deployment, Observation, observe
from steptime.predict.predict import predict_one
from steptime.predict.profile import HeldOut, MeasuredConfiguration, PredictedSeconds, Profile, ProfileGroup
from steptime.predict.query import Query
from steptime.predict.targets import Target


def fit_with_holdout(store: Store, tables: Sequence[NcclTable] = ()) -> Profile:
    """Return the profile of a store, with its errors on configurations that the fit did not see; see ``fit.fit``."""
    observations = observe(store)
    return with_holdout(fit(store, observations, tables), observations)


def with_holdout(profile: Profile, observations: Sequence[Observation]) -> Profile:
    """Return the profile with the errors of its groups on configurations that they did not see."""
    groups = [
        group.model_copy(update={"held_out": _held_out(profile, group, observations)}) if group.parameters else group
        for group in profile.groups
    ]
    return profile.model_copy(update={"groups": groups})


def _held_out(profile: Profile, group: ProfileGroup, observations: Sequence[Observation]) -> list[HeldOut]:
    found = []
    for out in (each for each in group.measured if each.strategy == group.key.strategy):
        rest = [each for each in observations if each.trial != out.trial]
        if not any(each.key == group.key or each.key.computes_as(group.key) for each in rest):
            continue
        again = fit_group(group.key, rest, profile.machine, profile.net)
        held = _predict(profile, again, out) if again.parameters else None
        if held is not None:
            found.append(held)
    return found


def _predict(profile: Profile, again: ProfileGroup, out: MeasuredConfiguration) -> HeldOut | None:
    alone = profile.model_copy(update={"groups": [again]})
    target = Target(again.key, again, again)
    prediction = predict_one(alone, target, query_of(out.deployment), out.deployment.workers)
    if prediction.step_s is None:
        return None
    step = prediction.step_s
    expected = PredictedSeconds(value_s=step.value, low_s=step.low, high_s=step.high)
    phases = {
        name: PredictedSeconds(value_s=phase.value_s, low_s=phase.low_s, high_s=phase.high_s) if phase else None
        for name, phase in prediction.phases.items()
    }
    anomaly = anomaly_of(out.step_s, expected, out.phases, phases)
    return HeldOut(
        trial=out.trial,
        workers=out.deployment.workers,
        batch=out.deployment.batch,
        measured_s=out.step_s,
        predicted=expected,
        phases=phases,
        verdict=anomaly.verdict,
        anomalous_phase=anomaly.phase,
        nulls=_nulls(again.measured, out.deployment),
    )


def query_of(deployment: Deployment) -> Query:
    """Return the query that asks for a measured deployment."""
    return Query(
        batch_per_worker=deployment.batch,
        bucket_mb=deployment.bucket_mb,
        servers=deployment.servers or None,
        server_placement=deployment.placement,
        workers_per_host=deployment.workers_per_host if deployment.emulated else None,
        bandwidth=deployment.bandwidth if deployment.emulated else None,
        delay_s=deployment.delay_s if deployment.emulated and deployment.delay_s else None,
    )


def _nulls(rest: Sequence[MeasuredConfiguration], asked: Deployment) -> dict[str, float]:
    """Return what null models predict; they know only workers, so that times are scaled to the samples asked for."""
    times: dict[int, list[float]] = {}
    for each in rest:
        times.setdefault(each.deployment.workers, []).append(each.step_s * asked.batch / each.deployment.batch)
    workers = np.array(sorted(times), dtype=np.float64)
    seconds = np.array([float(np.mean(times[int(count)])) for count in workers])
    wanted = np.array([float(asked.workers)])
    return {name: float(null(workers, seconds, wanted)[0]) for name, null in NULLS.items()}


@dataclass(frozen=True)
class Errors:
    """Errors of held-out configurations, in percent of the measured step."""

    count: int
    median: float
    worst: float
    covered: float
    """Share of points inside their interval of 90 %."""


def errors_of(held: Sequence[HeldOut], null: str | None = None) -> Errors:
    """Return the errors of the model, or of one of its nulls; there must be a point."""
    errors = [
        abs((each.nulls[null] if null else each.predicted.value_s) / each.measured_s - 1.0) * 100 for each in held
    ]
    inside = [each.predicted.low_s <= each.measured_s <= each.predicted.high_s for each in held]
    return Errors(len(errors), float(np.median(errors)), max(errors), float(np.mean(inside)))
