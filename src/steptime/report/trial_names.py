"""What trials are called: short where a group's title has the rest, and never two alike."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from steptime.analysis.summary_form import EquivalenceSummary, TrialSummary
from steptime.document.number_format import count
from steptime.study.study import AXES, FURTHER_FIELDS

# What a trial's group and options do not say, in the order in which it is tried as a distinction.
_DISTINCTIONS = (
    "loader_processes",
    *(axis.field for axis in AXES if axis.distinction),
    *("threads", "hosts", "container"),
    *FURTHER_FIELDS,
)


class Names:
    """The names of a study's trials."""

    def __init__(self, trials: Sequence[TrialSummary]) -> None:
        self._short: dict[str, str] = {}
        self._without_tier: dict[str, str] = {}
        tiered = any("tuned" in trial.tiers for trial in trials)
        for group in dict.fromkeys(trial.group for trial in trials):
            members = [trial for trial in trials if trial.group == group]
            # What is trained until it is over is in tables of its own.
            for trained in (False, True):
                own = [trial for trial in members if (trial.training is not None) == trained]
                self._short.update(_distinct(own, tiered=tiered))
            for tier in dict.fromkeys(trial.tuning for trial in members):
                self._without_tier.update(_distinct([trial for trial in members if trial.tuning == tier], tiered=False))
        self._varying = {field for field in _CONDITIONS if _varies(trials, field)}

    def short(self, trial: TrialSummary) -> str:
        """``pytorch allreduce``, with its tier and the options that vary; unique among the trials of one group.

        A strategy that the framework does not implement itself names who does: ``caffe allreduce (steptime's …)``.
        """
        return self._short[trial.id]

    def without_tier(self, trial: TrialSummary) -> str:
        """The short name without the tier, for where the tier is shown by itself."""
        return self._without_tier[trial.id]

    def full(self, trial: TrialSummary) -> str:
        """The short name with the workload, the workers and every other condition that the study varies.

        Of who implements its strategy it has the first word: rankings have all of it.
        """
        parts = [short_of_implementer(self.short(trial), trial), trial.workload, count(trial.workers, "worker")]
        parts += [words(getattr(trial, field)) for field, words in _CONDITIONS.items() if field in self._varying]
        return ", ".join(parts)


def short_of_implementer(name: str, trial: TrialSummary) -> str:
    """Return a trial's name with the first word alone of who implements its strategy."""
    by = trial.implementation
    return name.replace(f"({by})", f"({by.partition(' ')[0]})") if by else name


def check_name(check: EquivalenceSummary, checks: Sequence[EquivalenceSummary]) -> str:
    """``horovod_pytorch allreduce controller=mpi``: framework, strategy and the settings in which checks differ."""
    alike = [_settings(each) for each in checks if (each.framework, each.strategy) == (check.framework, check.strategy)]
    mine = _settings(check)
    varied = [name for name in mine if len({str(settings.get(name)) for settings in alike}) > 1]
    return " ".join([check.framework, check.strategy, *(f"{name}={mine[name]}" for name in varied)])


def _settings(check: EquivalenceSummary) -> dict[str, Any]:
    return {"optimizer": check.optimizer, **check.options, **check.environment_variables}


def size(shape: Iterable[int]) -> str:
    """``3x64x64``."""
    return "x".join(str(each) for each in shape)


def _dataset(name: str | None) -> str:
    return name or "synthetic data"


_CONDITIONS: dict[str, Any] = {
    "input_shape": size,
    "dataset": _dataset,
    **{axis.field: axis.title.format for axis in AXES if axis.title},
}


def _varies(trials: Sequence[TrialSummary], field: str) -> bool:
    """Say whether trials of one workload differ in ``field``."""
    values = {(trial.workload, str(getattr(trial, field))) for trial in trials}
    return len(values) > len({workload for workload, _ in values})


def _distinct(trials: Sequence[TrialSummary], *, tiered: bool) -> dict[str, str]:
    names = {trial.id: _base(trial, tiered=tiered) for trial in trials}
    for field in _DISTINCTIONS:
        repeated = _repeated(names)
        for name in repeated:
            alike = [trial for trial in trials if names[trial.id] == name]
            if len({getattr(trial, field) for trial in alike}) > 1:
                names.update({trial.id: f"{name} {field}={getattr(trial, field)}" for trial in alike})
    repeated = _repeated(names)
    return {key: f"{name} [{key.rpartition('-')[2]}]" if name in repeated else name for key, name in names.items()}


def _base(trial: TrialSummary, *, tiered: bool) -> str:
    tier = f" {tier_name(trial)}" if tiered else ""
    varied = {**trial.varied_options, **trial.varied_variables}
    options = "".join(f" {name}={value}" for name, value in varied.items())
    implementation = f" ({trial.implementation})" if trial.implementation else ""
    return f"{trial.framework} {trial.strategy}{tier}{options}{implementation}"


def tier_name(trial: TrialSummary) -> str:
    """``documented``, ``tuned``, or ``documented=tuned`` where ``tuned`` changes nothing."""
    if trial.tuning == "documented" and "tuned" in trial.tiers:
        return "documented=tuned"
    return trial.tuning


def _repeated(names: dict[str, str]) -> set[str]:
    return {name for name, amount in Counter(names.values()).items() if amount > 1}
