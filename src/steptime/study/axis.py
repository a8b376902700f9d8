"""What is true of one axis of a study; the table of all of them is ``AXES`` of ``study/study.py``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from steptime.study.trial import Trial

REFERENCE = "reference"
"""The framework that computes what is right."""
KEPT = object()
"""Of a neutral value: that of the trial."""
_BY_FIELD = object()
"""Of a neutral value: the default of a field that is as given, and of others that of the trial."""


@dataclass(frozen=True)
class Axis:
    """A key that may hold several values, each of which gives trials of its own."""

    name: str
    """The key of a study, or of its ``train``, and of an inclusion and an exclusion."""
    field: str
    """The field of a combination, and of a trial, that has one of the values, or has it as a part."""
    values: Any
    """The type of the values of an inclusion."""
    excluded: Any = None
    """The type of the values of an exclusion, where it is another."""
    part: str | None = None
    """The part of the field that an exclusion compares; None if it is the whole."""
    as_given: bool = False
    """Whether the field has a value of the study unchanged, with no rule about it."""
    about_inclusion: str | None = None
    """A description beyond that of the study's key."""
    about_exclusion: str | None = None
    """Likewise."""
    of_trial: Callable[[Trial], Any] | None = None
    """What a study of one trial has under the key; None if it is a list of the field's value."""
    neutral: Any = _BY_FIELD
    """The value that changes nothing of what is right, which the reference of the checks has; or ``KEPT``."""
    environment: bool = False
    """Whether it chooses in what a process runs: the reference for a user's module keeps it."""
    title: str = ""
    """Its value in the full name of a trial, as ``{} loader``; empty where another part of names has it."""
    in_group: bool = False
    """Whether trials are ranked together only where they agree in it."""
    distinction: bool = False
    """Whether a short name has it as ``field=value`` where trials have one name else."""
    options_follow: tuple[str, ...] | None = None
    """Fields that are decided with the options, where options depend on it; None if they do not."""
    is_name: bool = False
    """Whether its values are names that need no key before them."""
    column: bool = True
    """Whether the field is a column of an exported table by itself."""

    def value_alone(self, trial: Trial) -> Any:  # noqa: ANN401 - in JSON, as a study has it
        """Return what a study of ``trial`` alone has under the key."""
        if self.of_trial:
            return self.of_trial(trial)
        return [trial.model_dump(mode="json", include={self.field})[self.field]]

    @property
    def is_further(self) -> bool:
        """Whether lists and reports write the field as ``field=value``, having no words of their own for it."""
        return self.as_given and not self.in_group

    def neutral_for(self, trial: Trial) -> Any:  # noqa: ANN401 - any value of a trial
        """Return the field of the trial by which the reference computes what is right of ``trial``."""
        if self.neutral is _BY_FIELD and self.as_given:
            return Trial.model_fields[self.field].get_default(call_default_factory=True)
        return getattr(trial, self.field) if self.neutral in (KEPT, _BY_FIELD) else self.neutral


def loaders_alone(trial: Trial) -> list[dict[str, Any]]:
    """Return the loaders of a study of ``trial`` alone."""
    return [{"name": trial.loader, "processes": [trial.loader_processes]}]


def variables_alone(trial: Trial) -> dict[str, list[str]]:
    """Return the environment variables of a study of ``trial`` alone."""
    return {name: [value] for name, value in trial.environment_variables.items()}
