"""Knees of predictions: of a fitted profile's models and of a user's own script, from the draws of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steptime.errors import UsageError
from steptime.fitting.attached_profile import AttachedProfile
from steptime.fitting.observation import GroupKey
from steptime.fitting.profile import Profile
from steptime.predict.attached import predict_attached
from steptime.predict.predict import Prediction, predict_one
from steptime.predict.query import Query, check_sizes
from steptime.predict.targets import targets
from steptime.scaling.knee import SHARES, Knee, doublings, knees


@dataclass(frozen=True)
class PredictedKnees:
    """The knees of one model and query."""

    key: GroupKey
    query: Query
    knees: list[Knee] | None
    """None if fewer than two numbers of workers are predicted."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that docs/prediction.md describes."""
        key = self.key
        return {
            "framework": key.framework,
            "strategy": key.strategy,
            "tuning": key.tuning,
            "workload": key.workload,
            "changed": dict(self.query.texts),
            "knees": None if self.knees is None else [knee.to_json() for knee in self.knees],
        }


def profile_knees(profile: Profile, queries: Sequence[Query], shares: Sequence[float] = SHARES) -> list[PredictedKnees]:
    """Return the knees of each model and query, over the numbers of workers that are not refused."""
    return [
        PredictedKnees(target.key, query, _knees_of_steps(steps, shares) or None)
        for query in queries
        for target in targets(profile, query)
        for steps in [[predict_one(profile, target, query, count) for count in doublings(1) if _can_be(count, query)]]
    ]


def of_answered(bends: Sequence[PredictedKnees], predictions: Sequence[Prediction]) -> list[PredictedKnees]:
    """Return knees without those of models and queries of which every step that was asked for is refused."""
    answered = {(each.key, tuple(each.query.texts.items())) for each in predictions if not each.refused}
    return [
        bend if (bend.key, tuple(bend.query.texts.items())) in answered else replace(bend, knees=None) for bend in bends
    ]


def _can_be(workers: int, query: Query) -> bool:
    """Whether a query can have so many workers: hosts hold them, and they share its global batch equally."""
    try:
        check_sizes([workers], [query])
    except UsageError:
        return False
    return True


def _knees_of_steps(steps: Sequence[Prediction], shares: Sequence[float]) -> list[Knee]:
    """Return the knees over the first numbers of workers that follow each other and are predicted."""
    known: list[Prediction] = []
    for step in steps:
        if step.draws is not None:
            known.append(step)
        elif known:
            break
    drawn = [step.draws for step in known if step.draws is not None]
    if not drawn:
        return []
    efficiency, throughput = (np.stack(columns, axis=1) for columns in zip(*drawn, strict=True))
    return knees([step.workers for step in known], efficiency, throughput, shares)


def attached_knees(profile: AttachedProfile, shares: Sequence[float] = SHARES) -> list[Knee] | None:
    """Return the knees of a user's own script, whose workers keep their batches; None if fewer than two are known."""
    counts = doublings(1)
    between = profile.link is not None and profile.link.between_hosts
    drawn = []
    for step in predict_attached(profile, counts):
        if step.draws_s is None or (step.between_hosts and step.workers > 1 and not between):
            break  # a curve is over one link: what follows is refused, or goes over another
        drawn.append(step.draws_s)
    if not drawn:
        return None
    seconds = np.stack(drawn, axis=1)
    workers = np.asarray(counts[: len(drawn)], dtype=float)
    return knees(counts[: len(drawn)], seconds[:, :1] / seconds, workers / seconds, shares) or None
