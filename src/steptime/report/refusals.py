"""Predictions that are refused: of which numbers of workers, of which models, and why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from steptime.document.number_format import listed
from steptime.document.section import Section, Sentences

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.attached import AttachedPrediction
    from steptime.predict.predict import Prediction

_MOST_COUNTS = 4
"""Numbers of workers that are written out."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class RefusedWorkers:
    """Why numbers of workers are refused, of one model."""

    workers: str
    """``4 and 8 workers``; empty where no number is predicted."""
    reason: str

    @property
    def sentence(self) -> str:
        """All of it."""
        lead = f"Refused for {self.workers}" if self.workers else "Refused"
        return f"{lead}: {self.reason}."


def refusals(group: "Sequence[Prediction | AttachedPrediction]") -> list[RefusedWorkers]:
    """Return each reason why some of a model's numbers of workers are refused.

    Reasons that differ in their numbers alone are one, that of the fewest workers.
    """
    reasons: dict[str, list[Prediction | AttachedPrediction]] = {}
    for prediction in sorted(group, key=attrgetter("workers")):
        if prediction.refused is not None:
            reasons.setdefault(_NUMBER.sub("", prediction.refused), []).append(prediction)
    several = len(reasons) > 1 or not all(each.refused for each in group)
    return [
        RefusedWorkers(_workers([each.workers for each in alike]) if several else "", str(alike[0].refused))
        for alike in reasons.values()
    ]


def _workers(counts: Sequence[int]) -> str:
    """Return ``4 and 8 workers``; of many numbers the first and the last."""
    several = sorted(set(counts))
    shown = listed(list(map(str, several))) if len(several) <= _MOST_COUNTS else f"{several[0]} to {several[-1]}"
    return f"{shown} worker{'s'[: several != [1]]}"


def refusal_section(shared: Mapping[RefusedWorkers, Sequence[str]], models: int) -> Section:
    """Return the section of refusals that several models share, out of the number of ``models``."""
    lines = []
    for refused, names in shared.items():
        which = "All models" if len(names) == models else "; ".join(names)
        lines.append(f"{', '.join(filter(None, [which, refused.workers]))}: {refused.reason}.")
    return Section("Refused", [Sentences(lines)])
