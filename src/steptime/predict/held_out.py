"""How wrong a profile is where it can be checked: each configuration left out in turn, and predicted from the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptime.predict.anomaly import band
from steptime.predict.curve.reference_models import NULLS
from steptime.predict.fit import fit_group
from steptime.predict.observation import Observation, Setting
from steptime.predict.predict import predict_one
from steptime.predict.profile import Expected, Group, Held, Measured, Profile
from steptime.predict.query import Wish
from steptime.predict.targets import Target


def with_holdout(profile: Profile, observations: Sequence[Observation]) -> Profile:
    """Return the profile with the errors of its groups on configurations that they did not see."""
    groups = [
        group.model_copy(update={"held": _held(profile, group, observations)}) if group.parameters else group
        for group in profile.groups
    ]
    return profile.model_copy(update={"groups": groups})


def _held(profile: Profile, group: Group, observations: Sequence[Observation]) -> list[Held]:
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


def _predict(profile: Profile, again: Group, out: Measured) -> Held | None:
    alone = profile.model_copy(update={"groups": [again]})
    target = Target(again.key, again, again)
    prediction = predict_one(alone, target, wish_of(out.setting), out.setting.workers)
    if prediction.step_s is None:
        return None
    step = prediction.step_s
    expected = Expected(value_s=step.value, low_s=step.low, high_s=step.high)
    phases = {
        name: Expected(value_s=phase.value_s, low_s=phase.low_s, high_s=phase.high_s) if phase else None
        for name, phase in prediction.phases.items()
    }
    judged = band(out.step_s, expected, out.phases, phases)
    return Held(
        trial=out.trial,
        workers=out.setting.workers,
        batch=out.setting.batch,
        measured_s=out.step_s,
        predicted=expected,
        phases=phases,
        verdict=judged.verdict,
        off=judged.off,
        nulls=_nulls(again.measured, out.setting),
    )


def wish_of(setting: Setting) -> Wish:
    """Return the wish that asks for a setting which was measured."""
    return Wish(
        batch_per_worker=setting.batch,
        bucket_mb=setting.bucket_mb,
        servers=setting.servers or None,
        server_placement=setting.placement,
        workers_per_host=setting.workers_per_host if setting.emulated else None,
        bandwidth=setting.bandwidth if setting.emulated else None,
        delay_s=setting.delay_s if setting.emulated and setting.delay_s else None,
    )


def _nulls(rest: Sequence[Measured], asked: Setting) -> dict[str, float]:
    """Null models know workers alone; times of another batch are scaled to this one's samples."""
    times: dict[int, list[float]] = {}
    for each in rest:
        times.setdefault(each.setting.workers, []).append(each.step_s * asked.batch / each.setting.batch)
    workers = np.array(sorted(times), dtype=np.float64)
    seconds = np.array([float(np.mean(times[int(count)])) for count in workers])
    wanted = np.array([float(asked.workers)])
    return {name: float(null(workers, seconds, wanted)[0]) for name, null in NULLS.items()}


@dataclass(frozen=True)
class Errors:
    """Of held-out points, in percent of what was measured."""

    count: int
    median: float
    worst: float
    covered: float
    """Share of points inside their interval of 90 %."""


def errors_of(held: Sequence[Held], null: str | None = None) -> Errors:
    """Return the errors of the model, or of one of its nulls; there must be a point."""
    errors = [
        abs((each.nulls[null] if null else each.predicted.value_s) / each.measured_s - 1.0) * 100 for each in held
    ]
    inside = [each.predicted.low_s <= each.measured_s <= each.predicted.high_s for each in held]
    return Errors(len(errors), float(np.median(errors)), max(errors), float(np.mean(inside)))
