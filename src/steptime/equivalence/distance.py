"""Distances between what a framework and the reference computed, array by array, from their sketches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.catalog.workloads.layers import Workload

Sketch = Mapping[str, NDArray[np.floating[Any]]]
"""Of all weights by their names, as ``worker/weights.py`` makes it."""

_ROUNDINGS = {"fp32": 16.0, "tf32": 1.0, "fp16": 1.0, "bf16": 2.0}
"""So many times the reference's own rounding is allowed: frameworks add in other orders, and convolve in other ways.
TF32 and half precision keep three bits more than bfloat16, in whose rounding they are counted."""
_FLOOR = {"fp32": 1e-2, "tf32": 2e-2, "fp16": 2e-2, "bf16": 5e-2}
"""Of an update's scale, which is allowed whatever the rounding: one rounded activation near zero changes a gradient by
up to some thousandths. The smallest planted faults change more (docs/equivalence.md)."""
_CLEARLY_AWAY = 0.01
"""Of a floor: what is further away than that and than rounding had another gradient. Frameworks were up to 6e-5 of an
update away without one, since the rounding of a bias of one value can be nothing by chance."""
_FEW = 0.05
"""Of the arrays of a network, which may be further away than the others: where a network has a hundred arrays and
millions of activations, one that lies at zero to the last digit shows in the arrays of its channel and in those of the
layers before it. In a network of fewer than twenty arrays there is none."""
_FEW_FLOORS = 3.0
"""So many floors those few may be away."""
_SLOPE = {"fp32": 0.01, "tf32": 0.02, "fp16": 0.02, "bf16": 0.04}
"""That the length of a gradient along the right one may be away from 1, as the mean over arrays: rounding mostly goes
in all directions, and a wrong rate or share in this one."""
_CLEAR = 0.3
"""Arrays whose rounding is a larger share of their update have no slope."""
_ONE_ACTIVATION = 0.3
"""The most of an array's update that one activation of one of eight samples decides."""
_STORAGE = 2.0**-21
"""Of the length of an array: its values are stored in single precision, before and after an update."""
_LOSS_FLOOR = {"fp32": 1e-4, "tf32": 3e-3, "fp16": 3e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Round:
    """What is right of one round: the weights at both ends and the loss, and how far rounding alone is from it."""

    steps: int
    start: Sketch
    end: Sketch
    units: Mapping[str, float]
    """By array, the distance of an update that is rounding alone, or whatever else may be."""
    loss: float | None
    loss_unit: float
    """Absolute."""
    usual: Mapping[str, float] = field(default_factory=dict)
    """By bias, as ``with_usual_lengths`` has it."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """By array, how far other updates are from this one that are as right."""
    loss_spread: float = 0.0
    """Absolute, likewise."""

    def length(self, name: str) -> float:
        """Return how far the weights of an array go in this round."""
        return norm(self.end[name] - self.start[name])

    def scale(self, name: str) -> float:
        """Return how long an update of an array is that is not short by chance."""
        return max(self.length(name), self.usual.get(name, 0.0))

    @property
    def rounding(self) -> float:
        """How large rounding is over all arrays, relative to the update."""
        lengths = math.hypot(*(self.length(name) for name in self.end))
        return math.hypot(*self.units.values()) / max(lengths, 1e-30)

    def allowed(self, name: str, precision: str, floors: float = 1.0) -> float:
        """Return the distance from the right update that an array may have."""
        return (
            _ROUNDINGS[precision] * self.units[name]
            + floors * _FLOOR[precision] * self.scale(name)
            + _STORAGE * norm(self.end[name])
            + self.spread.get(name, 0.0)
        )

    def allowed_loss(self, precision: str, first: float | None = None) -> float:
        """Return the distance from the right loss that is allowed.

        Updates that may be one floor away take the loss as far from where ``first``, the first loss, has put it.
        """
        right = self.loss or 0.0
        change = abs(right - (right if first is None else first))
        of_rounding = _ROUNDINGS[precision] * self.loss_unit
        spread = min(self.loss_spread, _ONE_ACTIVATION * change)
        return max(_LOSS_FLOOR[precision] * abs(right), of_rounding, _FLOOR[precision] * change) + spread

    def beside(self, others: Sequence["Round"]) -> "Round":
        """Return this round, with an update allowed that is as far away as the furthest of ``others``.

        It is at most as far as one activation goes, so that a missing or double exchange is always a fault.
        """
        spread = {}
        for name, end in self.end.items():
            update = end - self.start[name]
            furthest = max((norm(each.end[name] - each.start[name] - update) for each in others), default=0.0)
            spread[name] = min(furthest, _ONE_ACTIVATION * self.scale(name))
        losses = [abs(each.loss - self.loss) for each in others if each.loss is not None and self.loss is not None]
        return replace(self, spread=spread, loss_spread=max(losses, default=0.0))


@dataclass(frozen=True)
class Distance:
    """How far the update of one array is from the right one."""

    name: str
    distance: float
    allowed: float
    allowed_for_few: float
    """Where it is one of the few arrays that may be further away than the others."""
    allowed_for_rounding: float
    """What is further away had another gradient."""
    update: float
    """Length of the right one."""
    scale: float
    """Its length, or the usual one where it is short by chance."""
    unit: float

    @property
    def relative(self) -> float:
        """The distance relative to the update."""
        return self.distance / max(self.update, 1e-30)

    @property
    def rounding(self) -> float:
        """The unit relative to the update."""
        return self.unit / max(self.update, 1e-30)

    def in_words(self) -> str:
        """Return how far it is, as the end of a sentence."""
        allowed = self.allowed / max(self.update, 1e-30)
        return (
            f"differs from the reference's by {self.relative:.2g} times its length "
            f"(allowed: {allowed:.2g}, rounding: {self.rounding:.2g})"
        )

    @property
    def excess(self) -> float:
        """The distance relative to what is allowed; above 1 it is a fault."""
        return self.distance / self.allowed if math.isfinite(self.distance) else math.inf


def samples_into(workload: Workload) -> dict[str, int]:
    """Return by the weight of the only layer of a workload how many inputs it has; nothing of a workload with several.

    In checks of loaders, rounds of a step or two, any share of a bias may be short by chance, and their median too.
    """
    weighted = [layer for layer in workload.layers if layer.parameters]
    if len(weighted) != 1:
        return {}
    return {each.name: math.prod(each.shape[1:]) for each in weighted[0].parameters if each.role == "weight"}


def with_usual_lengths(rounds: Sequence[Round], samples_into: Mapping[str, int] = MappingProxyType({})) -> list[Round]:
    """Return ``rounds`` with the usual length of each bias's update beside that of its layer's weight.

    A bias's update is a sum over samples and steps that may be nothing by chance, above all where there are two
    classes; a weight's has as many such sums as inputs. The usual share is the median of all rounds, and at least one
    over the root of the inputs, where these are samples: their variance is 1.

    Args:
        rounds: of one truth.
        samples_into: by weight of a layer that takes samples as they are, the number of its inputs.
    """
    usual: list[dict[str, float]] = [{} for _ in rounds]
    for name in rounds[0].end:
        weight = f"{name.removesuffix('.bias')}.weight"
        if weight != name and weight in rounds[0].end:
            shares = [each.length(name) / max(each.length(weight), 1e-30) for each in rounds]
            share = max(median(shares), samples_into.get(weight, math.inf) ** -0.5)
            for found, each in zip(usual, rounds, strict=True):
                found[name] = share * each.length(weight)
    return [replace(each, usual=found) for each, found in zip(rounds, usual, strict=True)]


def distances(start: Sketch, end: Sketch, right: Round, precision: str) -> list[Distance]:
    """Return the distances of all arrays whose weights were ``start`` before and are ``end`` after a round.

    Raises ValueError when arrays are missing, or have another size than they should.
    """
    missing, surplus = sorted(set(right.end) - set(end)), sorted(set(end) - set(right.end))
    if missing or surplus:
        message = f"weights are missing: {missing}, or are not of the workload: {surplus}"
        raise ValueError(message)
    found = []
    for name, expected in right.end.items():
        if end[name].shape != expected.shape:
            message = f"{name} has {end[name].size} values, not {expected.size}"
            raise ValueError(message)
        difference = (end[name] - start[name]) - (expected - right.start[name])
        found.append(
            Distance(
                name=name,
                distance=norm(difference),
                allowed=right.allowed(name, precision),
                allowed_for_few=right.allowed(name, precision, _FEW_FLOORS),
                allowed_for_rounding=right.allowed(name, precision, _CLEARLY_AWAY),
                update=right.length(name),
                scale=right.scale(name),
                unit=right.units[name],
            )
        )
    return found


def worst_fault(found: Sequence[Distance]) -> Distance | None:
    """Return the array that is furthest beyond what is allowed; None if all are within it.

    The furthest ``_FEW`` of the arrays may be ``_FEW_FLOORS`` floors away.
    """
    ordered = sorted(found, key=lambda each: each.excess, reverse=True)
    few = int(_FEW * len(ordered))
    for place, each in enumerate(ordered):
        allowed = each.allowed_for_few if place < few else each.allowed
        if not each.distance <= allowed:
            return each
    return None


def may_be_one_activation(found: Sequence[Distance]) -> bool:
    """Say whether what is too far away may be one activation at zero, whose slope rounding decided.

    It changes the arrays before it, by a part of their updates, and none behind it.
    """
    far = [each for each in found if not each.distance <= each.allowed]
    return len(far) < len(found) and all(each.distance <= _ONE_ACTIVATION * each.scale for each in far)


def wrong_slope(start: Sketch, end: Sketch, right: Round, precision: str) -> float | None:
    """Return the length of an update along the right one, as the mean over arrays, where it is too far from 1.

    An array counts as its update does beside its scale, since rounding may turn what is small by chance, and by one
    over the variance (C. Gauss) of its rounding and of what is allowed. In deep networks the rounding of one
    activation makes the gradients of all layers before it longer or shorter together.
    """
    total = weights = 0.0
    for name, expected in right.end.items():
        update = expected - right.start[name]
        squared = float(update @ update)
        if squared > 0 and right.units[name] < _CLEAR * math.sqrt(squared):
            doubt = 1.0 + (right.units[name] / _SLOPE[precision]) ** 2 / squared
            share = 1.0 / (right.scale(name) ** 2 * doubt)
            total += float((end[name] - start[name]) @ update) * share
            weights += squared * share
    slope = total / weights if weights else 1.0
    return None if abs(slope - 1.0) <= _SLOPE[precision] else slope


def relative_distance(weights: Sketch, right: Sketch) -> float:
    """Return the largest distance of an array from the right one, relative to its length, but not below one hundredth.

    An array that starts at zero has only noise to be relative to.
    """
    return max(norm(weights[name] - expected) / max(norm(expected), 1e-2) for name, expected in right.items())


def norm(array: NDArray[np.floating[Any]]) -> float:
    """Return the Euclidean length; infinite where a value is not a number."""
    length = float(np.sqrt(np.sum(np.square(array, dtype=np.float64))))
    return length if math.isfinite(length) else math.inf


def read_sketches(folder: Path, rank: int) -> dict[int, Sketch]:
    """Return the sketches that a worker of a check left, by round from 1; empty where it holds no weights."""
    path = folder / f"sketches-{rank}.npz"
    if not path.exists():
        return {}
    found: dict[int, dict[str, NDArray[np.floating[Any]]]] = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            found.setdefault(int(number), {})[name] = file[key]
    return dict(found)
