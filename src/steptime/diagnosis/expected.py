"""What a step should take, beside what it takes: by the folder's own profile, another machine's, or pasted figures."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import hypot, log
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.diagnosis.form import ExpectedStep, Judgement
from steptime.errors import FileError, UsageError
from steptime.phases import HIDDEN
from steptime.results.json_form import Interval
from steptime.results.results_files import default_profile_path
from steptime.statistics.interval import from_log
from steptime.user_file import read_user_text

if TYPE_CHECKING:
    from steptime.fitting.profile import HeldOut, PredictedSeconds, Profile
    from steptime.predict.predict import PredictedPhase

_MOST_BYTES = 2**24
_COLUMNS = ("framework", "strategy", "workload", "workers", "batch_per_worker")
_FIGURES = ("step_s", "samples_per_s")
_TO_95 = 1.96 / 1.645
"""From an interval of 90 % to one of 95 %, on the scale of logarithms."""


@dataclass(frozen=True)
class _Band:
    step_s: Interval[float, float]
    phases_s: Mapping[str, Interval[float, float] | None]


def expected_steps(folder: Path, summary: Summary, reference: Path | None = None) -> list[ExpectedStep]:
    """Return the expectation of every trial that was measured.

    Args:
        folder: of the results.
        summary: of them.
        reference: a profile of another machine, or a CSV file of figures; None for the profile beside the folder, whose
            predictions of a trial were made without it.

    Raises StoreError or UsageError where a file cannot be read.
    """
    measured = [each for each in summary.trials if each.step_time_s.mean is not None]
    if reference is not None and reference.suffix == ".csv":
        figures = read_figures(reference)
        return [_figure(each, figures, reference.name) for each in measured]
    path = reference or default_profile_path(folder)
    if reference is None and not path.is_file():
        why = f"no profile beside the folder: steptime fit {folder}"
        return [_unknown(each, "own profile", why) for each in measured]
    from steptime.fitting.profile import read_profile  # noqa: PLC0415 - most reports have none, and wait for no model

    profile = read_profile(path)
    if reference is not None:
        return [_predicted(each, profile, reference.name) for each in measured]
    bands = {each.trial: _held_out(each) for group in profile.groups for each in group.held_out}
    why = "the profile was not tried without this trial: too few others are like it"
    return [
        _judged(each, bands[each.id], "own profile") if each.id in bands else _unknown(each, "own profile", why)
        for each in measured
    ]


def _held_out(left_out: "HeldOut") -> _Band:
    step = left_out.predicted
    return _Band(Interval(step.value_s, step.low_s, step.high_s), _seconds(left_out.phases))


def read_figures(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table of figures, as pasted from a vendor's; raises UsageError with what is wrong."""
    try:
        rows = list(csv.DictReader(StringIO(read_user_text(path, _MOST_BYTES))))
    except FileError as error:
        raise UsageError(str(error)) from error
    wrong = []
    for number, row in enumerate(rows, 2):
        named = [name for name in _FIGURES if row.get(name)]
        if not named:
            wrong.append(f"{path}:{number}: neither {' nor '.join(_FIGURES)} has a value")
        given = [*named, *(key for key in ("low", "high") if row.get(key))]
        wrong += [
            f"{path}:{number}: {name} is {row[name][:40]!r}, not a positive number"
            for name in given
            if not _positive(row[name])
        ]
    if not rows:
        wrong.append(f"{path}: no rows; the first line names columns: some of {', '.join((*_COLUMNS, *_FIGURES))}")
    if wrong:
        raise UsageError(wrong)
    return rows


def _positive(text: str) -> bool:
    try:
        return 0.0 < float(text) < float("inf")
    except ValueError:
        return False


def _figure(trial: TrialSummary, rows: Sequence[Mapping[str, str]], source: str) -> ExpectedStep:
    fits = [row for row in rows if all(not row.get(key) or row[key] == str(getattr(trial, key)) for key in _COLUMNS)]
    if len(fits) != 1:
        why = "no row is about this trial" if not fits else f"{len(fits)} rows are about this trial"
        return _unknown(trial, source, why)
    row = fits[0]
    values = [float(row[key]) if row.get(key) else None for key in ("step_s", "low", "high")]
    if values[0] is None:
        samples = trial.workers * trial.batch_per_worker
        values = [None if not row.get(key) else samples / float(row[key]) for key in ("samples_per_s", "high", "low")]
    value, low, high = values
    assert value is not None  # noqa: S101 - read_figures has seen one of both
    step_s = Interval(value, low or value, high or value)
    if not step_s.low <= value <= step_s.high:
        return _unknown(trial, source, "its row has bounds that do not hold its value")
    return _judged(trial, _Band(step_s, {}), source)


def _predicted(trial: TrialSummary, profile: "Profile", source: str) -> ExpectedStep:
    from steptime.predict.predict import predict  # noqa: PLC0415 - likewise
    from steptime.predict.query import Query  # noqa: PLC0415

    query = Query(
        framework=trial.framework,
        strategy=trial.strategy,
        workload=trial.workload,
        loader=trial.loader,
        batch_per_worker=trial.batch_per_worker,
        servers=trial.servers or None,
    )
    try:
        found = predict(profile, [trial.workers], [query])
    except UsageError as error:
        return _unknown(trial, source, str(error))
    made = [each for each in found if each.step_s is not None]
    if not made:
        reasons = dict.fromkeys(each.refused for each in found if each.refused)
        return _unknown(trial, source, "; ".join(reasons) or "the profile has no model of its framework")
    best = made[0]
    assert best.step_s is not None  # noqa: S101 - for the type checker
    return _judged(trial, _Band(best.step_s, _seconds(best.phases)), source)


def _seconds(
    phases: "Mapping[str, PredictedSeconds | None] | Mapping[str, PredictedPhase | None]",
) -> dict[str, Interval[float, float] | None]:
    return {name: Interval(each.value_s, each.low_s, each.high_s) if each else None for name, each in phases.items()}


def _unknown(trial: TrialSummary, source: str, reason: str) -> ExpectedStep:
    nothing: Interval[float | None] = Interval(None, None, None)
    return ExpectedStep(trial=trial.id, source=source, expected_s=nothing, ratio=nothing, judgement=None, reason=reason)


def _judged(trial: TrialSummary, band: _Band, source: str) -> ExpectedStep:
    time, step_s = trial.step_time_s, band.step_s
    assert time.mean is not None  # noqa: S101 - of trials that were measured alone
    measured = 0.0 if time.low is None or time.high is None else log(time.high / time.low) / 2
    centre = log(time.mean / step_s.value)
    below = hypot(measured, _TO_95 * log(step_s.high / step_s.value))
    above = hypot(measured, _TO_95 * log(step_s.value / step_s.low))
    ratio: Interval[float | None] = Interval(*map(from_log, (centre, centre - below, centre + above)))
    judgement: Judgement = "as expected"
    if centre - below > 0.0:
        judgement = "slower"
    elif centre + above < 0.0:
        judgement = "faster"
    return ExpectedStep(
        trial=trial.id,
        source=source,
        expected_s=Interval(step_s.value, step_s.low, step_s.high),
        ratio=ratio,
        judgement=judgement,
        phase=_farthest(trial, band) if judgement == "slower" else None,
    )


def _farthest(trial: TrialSummary, band: _Band) -> str | None:
    """Return the phase that is farthest above its own expectation."""
    measured = trial.phases or {}
    excess = {
        name: phase.value_s - expected.high
        for name, expected in band.phases_s.items()
        if expected is not None and (phase := measured.get(name)) is not None and name != HIDDEN.name
    }
    name = max(excess, key=lambda each: excess[each], default=None)
    return name if name is not None and excess[name] > 0.0 else None
