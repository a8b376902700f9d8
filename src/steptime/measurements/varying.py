"""In which of their options the trials of a study differ."""

from collections.abc import Sequence
from typing import Any

from steptime.study.trial import Trial

Varied = dict[tuple[str, str], set[str]]
"""Names of options, by framework and strategy."""


def varied_options(trials: Sequence[Trial]) -> Varied:
    """Return, by framework and strategy, the options that have more than one value."""
    values: dict[tuple[str, str], dict[str, set[Any]]] = {}
    for trial in trials:
        known = values.setdefault((trial.framework, trial.strategy), {})
        for name, value in trial.options.items():
            known.setdefault(name, set()).add(value)
    return {key: {name for name, seen in known.items() if len(seen) > 1} for key, known in values.items()}


def in_words(trial: Trial, varied: Varied) -> str:
    """Return framework and strategy of ``trial``, its servers if it has any, and those of its options that vary."""
    names = varied.get((trial.framework, trial.strategy), set())
    parts = [
        trial.framework,
        trial.strategy,
        *(f"{name}={trial.options[name]}" for name in trial.options if name in names),
    ]
    if trial.servers:
        parts.append(f"servers={trial.servers}")
    if trial.server_placement == "colocated":
        parts.append("colocated")
    return " ".join(parts)
