"""The tiers of a study's options: the race of a trial, and what the tier ``tuned`` changes and gains."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from steptime.catalog.options import Tuning
from steptime.measurements.comparison import Measured, compare_trials
from steptime.measurements.interval import LEVEL
from steptime.measurements.simultaneous import sidak_level
from steptime.measurements.summary_form import OptionChange, TunedTrial
from steptime.study.trial import Trial

TIERS: tuple[Tuning, ...] = get_args(Tuning)
"""In the order in which they are shown."""


def tiers_of(trial: Trial, kept: Mapping[str, Any]) -> list[Tuning]:
    """Return the tiers of ``trial``.

    Args:
        trial: documented or tuned.
        kept: what a run kept of the tiers of trials, by trial id; a run of a study that races both tiers
            marks every trial in which ``tuned`` changes nothing.
    """
    return _known(kept.get(trial.id)) or [trial.tuning]


def tuned_trials(trials: Sequence[Trial], measured: Mapping[str, Measured]) -> list[TunedTrial]:
    """Return every tuned trial with the options that its tier changed, and how much faster that made it.

    The intervals of all these ratios hold together.

    Args:
        trials: of the study.
        measured: those that may be compared, by trial id.
    """
    documented = {_cell(trial): trial for trial in trials if trial.tuning == "documented"}
    pairs = [(trial, documented.get(_cell(trial))) for trial in trials if trial.tuning == "tuned"]
    claims = sum(other is not None and {trial.id, other.id} <= measured.keys() for trial, other in pairs)
    return [_tuned(trial, other, measured, sidak_level(LEVEL, claims)) for trial, other in pairs]


def _tuned(trial: Trial, documented: Trial | None, measured: Mapping[str, Measured], level: float) -> TunedTrial:
    speedup = None
    if documented and documented.id in measured and trial.id in measured:
        speedup = compare_trials(measured[documented.id], measured[trial.id], level).interval
    return TunedTrial(
        group=trial.group,
        trial=trial.id,
        documented_trial=documented.id if documented else None,
        changed={
            name: OptionChange(documented=value, tuned=trial.options.get(name))
            for name, value in trial.documented_options.items()
        },
        speedup=speedup,
    )


def _cell(trial: Trial) -> str:
    """What a tuned trial and its documented counterpart share: all but the tier and what follows from it."""
    options = {**trial.options, **trial.documented_options}
    same = trial.model_copy(update={"tuning": "documented", "options": options, "documented_options": {}})
    # The value of an option may need another launcher.
    return same.model_copy(update={"launcher": ""}).id


def merged_tiers(before: Mapping[str, Any], now: Mapping[str, Iterable[Tuning]]) -> dict[str, list[Tuning]]:
    """Return the tiers of trials by trial id: those that earlier runs of a folder kept, and those of its new run."""
    return {
        trial_id: [tier for tier in TIERS if tier in {*_known(before.get(trial_id)), *now.get(trial_id, ())}]
        for trial_id in {**before, **now}
    }


def _known(names: object) -> list[Tuning]:
    """The tiers that ``names`` has; somebody else may have written it."""
    return [tier for tier in TIERS if isinstance(names, list) and tier in names]
