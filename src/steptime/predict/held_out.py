"""Held-out errors of a profile: each configuration is left out in turn and predicted from the others.

Anomalies: measured steps that their predictions, made without them, do not explain, and the phase that is off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from steptime.curves.reference_models import NULLS
from steptime.fitting.breakdown_scale import timed_observations
from steptime.fitting.fit import fit, fit_group
from steptime.fitting.nccl_output import NcclTable
from steptime.fitting.observation import Deployment, Observation
from steptime.fitting.profile import (
    HeldOut,
    MeasuredConfiguration,
    PredictedSeconds,
    Profile,
    ProfileGroup,
    read_profile,
)
from steptime.phases import HIDDEN
from steptime.predict.predict import predict_one
from steptime.predict.query import Query
from steptime.predict.targets import Target
from steptime.results.results_files import default_profile_path
from steptime.results.store import Store

_TO_99 = 2.576 / 1.645
"""From an interval of 90 % to one of 99 %, on the scale of logarithms."""

Verdict = Literal["normal", "suspicious", "broken"]


@dataclass(frozen=True)
class Anomaly:
    """A measured step beside its prediction; seconds."""

    verdict: Verdict
    """``normal`` inside the interval of 90 %, ``suspicious`` inside that of 99 %, ``broken`` outside."""
    measured_s: float
    expected: PredictedSeconds
    phase: str | None
    """The phase that is farthest outside its own interval; None if the step is normal or no phase was measured."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that a report has for a trial."""
        return {
            "verdict": self.verdict,
            "predicted_s": {"value": self.expected.value_s, "low": self.expected.low_s, "high": self.expected.high_s},
            "ratio": self.measured_s / self.expected.value_s,
            "phase": self.phase,
        }


def anomaly_of(
    measured_s: float,
    expected: PredictedSeconds,
    measured_phases: Mapping[str, float | None],
    expected_phases: Mapping[str, PredictedSeconds | None],
) -> Anomaly:
    """Return the verdict on a measured step.

    Args:
        measured_s: the step.
        expected: its prediction with an interval of 90 %, made without this step.
        measured_phases: seconds by name; None, or absent, where a phase was not measured.
        expected_phases: predictions of the phases.
    """
    verdict = _verdict(measured_s, expected)
    slower = measured_s > expected.value_s
    farthest_phase = None
    if verdict != "normal":
        farthest = 0.0
        for name, phase in expected_phases.items():
            seen = measured_phases.get(name)
            if seen is None or phase is None or name == HIDDEN.name:
                continue
            excess = seen - phase.high_s if slower else phase.low_s - seen
            if excess > farthest:
                farthest, farthest_phase = excess, name
    return Anomaly(verdict, measured_s, expected, farthest_phase)


def anomalies_of(folder: Path, steps_s: Mapping[str, float]) -> dict[str, Anomaly]:
    """Return the verdict on each trial that the profile beside ``folder`` held out; none where there is no profile.

    Args:
        folder: of results.
        steps_s: measured steps by trial, which may be newer than the profile.

    Raises StoreError when the profile cannot be read.
    """
    path = default_profile_path(folder)
    if not path.is_file():
        return {}
    profile = read_profile(path)
    phases = {each.trial: each.phases for group in profile.groups for each in group.measured}
    return {
        each.trial: anomaly_of(steps_s[each.trial], each.predicted, phases.get(each.trial, {}), each.phases)
        for group in profile.groups
        for each in group.held_out
        if each.trial in steps_s
    }


def _verdict(measured_s: float, expected: PredictedSeconds) -> Verdict:
    if expected.low_s <= measured_s <= expected.high_s:
        return "normal"
    middle = np.log(expected.value_s)
    bound = np.log(expected.high_s if measured_s > expected.value_s else expected.low_s)
    return "suspicious" if abs(np.log(measured_s) - middle) <= _TO_99 * abs(bound - middle) else "broken"


def fit_with_holdout(store: Store, tables: Sequence[NcclTable] = ()) -> Profile:
    """Return the profile of a store, with its errors on configurations that the fit did not see; see ``fit.fit``."""
    observations = timed_observations(store)
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
    inside: int
    """Points inside their interval of 90 %."""

    @property
    def covered(self) -> float:
        """Share of the points."""
        return self.inside / self.count


def errors_of(held: Sequence[HeldOut], null: str | None = None) -> Errors:
    """Return the errors of the model, or of one of its nulls; there must be a point."""
    errors = [
        abs((each.nulls[null] if null else each.predicted.value_s) / each.measured_s - 1.0) * 100 for each in held
    ]
    inside = [each.predicted.low_s <= each.measured_s <= each.predicted.high_s for each in held]
    return Errors(len(errors), float(np.median(errors)), max(errors), sum(inside))
