"""Points that predictions did not know, each with how its step would change were messages longer.

A point's table of steps, with messages half, once, twice and four times as long, is all that the width of an interval
is fitted to; so it is kept in one CSV, with the source of each point.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from steptime.fitting.posterior import bounds
from steptime.fitting.profile import Profile
from steptime.fitting.step_model import phases_of, step_of
from steptime.predict.predict import model_step
from steptime.predict.query import Query
from steptime.predict.targets import Target
from steptime.predict.topology import Refusal
from steptime.predict.uncertainty import with_longer_waits

LONGER = (0.5, 1.0, 2.0, 4.0)
"""Times as long as modelled that messages and waiting take in the steps of a point."""


@dataclass(frozen=True)
class HeldOutPoint:
    """One step; seconds."""

    source: str
    kind: str
    """``published`` or ``emulated``."""
    case: str
    framework: str
    strategy: str
    workload: str
    known_workers: int
    """The most that the prediction knew."""
    workers: int
    crosses: int
    """1 where the prediction knew no step that crossed hosts, and this one does."""
    turns: float
    """Workers that take turns on a core, over those that the prediction knew."""
    own_deviation: float
    """Of the logarithm of the step, by its parameters and launches."""
    measured_s: float
    halved_s: float
    predicted_s: float
    doubled_s: float
    quadrupled_s: float


def held_out_point(  # noqa: PLR0913 - where the point comes from, and what is asked
    profile: Profile,
    target: Target,
    query: Query,
    workers: int,
    measured_s: float,
    *,
    source: str,
    kind: str,
    case: str,
) -> HeldOutPoint | None:
    """Return the point of a step that the profile does not know; None if its prediction is refused."""
    try:
        found = model_step(profile, target, query, workers, np.random.default_rng(7))
    except Refusal:
        return None
    steps = [step_of(phases_of(with_longer_waits(found.parameters, found.model, by), found.model)) for by in LONGER]
    middle = [float(np.median(each)) for each in steps]
    low, high = bounds(steps[1])
    spread = float(np.log(high / low)) / _NORMAL_90
    return HeldOutPoint(
        source=source,
        kind=kind,
        case=case,
        framework=target.key.framework,
        strategy=target.key.strategy,
        workload=target.key.workload,
        known_workers=max(each.deployment.workers for each in found.topology.nearest or found.group.measured),
        workers=workers,
        crosses=int(found.extrapolation.crosses),
        turns=found.extrapolation.turns,
        own_deviation=round(float(np.hypot(spread, found.group.spread)), 5),
        measured_s=float(f"{measured_s:.6g}"),
        **{f"{name}_s": float(f"{value:.6g}") for name, value in zip(_STEPS, middle, strict=True)},
    )


_NORMAL_90 = 2 * 1.6449
_STEPS = ("halved", "predicted", "doubled", "quadrupled")


def write_points(path: Path, points: Iterable[HeldOutPoint]) -> None:
    """Write points as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(HeldOutPoint)])
        writer.writeheader()
        writer.writerows(asdict(point) for point in points)


def read_points(path: Path) -> Sequence[HeldOutPoint]:
    """Return the points of a CSV."""
    kinds = {field.name: field.type for field in fields(HeldOutPoint)}
    with path.open(newline="") as file:
        return [
            HeldOutPoint(**{name: kinds[name](text) for name, text in row.items()})  # type: ignore[operator]
            for row in csv.DictReader(file)
        ]
