"""Whether advice gained what was predicted: the trials with and without it, measured in the same randomised blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.diagnosis.form import Finding
from steptime.diagnosis.verified import VerifiedAdvice
from steptime.measurements.comparison import compare
from steptime.measurements.estimate import estimate
from steptime.measurements.record_kinds import TIMING
from steptime.measurements.records import Launch
from steptime.measurements.store import Store
from steptime.study.trial import Trial


@dataclass(frozen=True)
class Attempt:
    """A finding with the trial that it is about, and the trial with its change."""

    finding: Finding
    before: Trial
    after: Trial


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt: the row of the table, or why there is none."""

    attempt: Attempt
    row: VerifiedAdvice | None
    reason: str | None


def outcomes(attempts: Sequence[Attempt], store: Store) -> list[Outcome]:
    """Return what the launches in ``store`` say of each attempt."""
    verdicts = store.verdicts()
    return [
        _outcome(each, store, {trial: verdict["reason"] for trial, verdict in verdicts.items()}) for each in attempts
    ]


def _outcome(attempt: Attempt, store: Store, refused: Mapping[str, str]) -> Outcome:
    sides = (attempt.before, attempt.after)
    reason = next((refused[each.id] for each in sides if each.id in refused), None)
    before, after = ([each for each in store.iter_records(TIMING, side.id) if each.status == "ok"] for side in sides)
    found = [
        estimate(launches, side.strategy) if launches else None
        for side, launches in zip(sides, (before, after), strict=True)
    ]
    if reason is not None or found[0] is None or found[1] is None:
        return Outcome(attempt, None, reason or "a launch failed, or none was run within the budget")
    ratio = compare(found[0].launches, found[1].launches)
    samples = attempt.after.global_batch / attempt.before.global_batch
    gain, finding = attempt.finding.gain, attempt.finding
    if gain.value is None or gain.low is None or gain.high is None:
        return Outcome(attempt, None, "no gain was predicted")
    row = VerifiedAdvice(
        rule=finding.rule,
        framework=attempt.before.framework,
        strategy=attempt.before.strategy,
        workload=attempt.before.workload,
        workers=attempt.before.workers,
        batch_per_worker=attempt.before.batch_per_worker,
        overrides=" ".join(finding.overrides),
        predicted=gain.value,
        predicted_low=gain.low,
        predicted_high=gain.high,
        measured=samples * ratio.ratio,
        measured_low=samples * ratio.low,
        measured_high=samples * ratio.high,
        launches=min(len(before), len(after)),
        load=_load(before),
    )
    return Outcome(attempt, row, None)


def _load(launches: Sequence[Launch]) -> float:
    known = [value for each in launches if (value := each.noise.get("foreign_cpu_cores")) is not None]
    return sum(known) / len(known) if known else 0.0
