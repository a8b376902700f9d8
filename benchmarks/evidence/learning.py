"""Learning what to believe of the parameters from curves whose every point is known.

Expectation and maximisation: each curve's points, all of them, say how the parameters of that curve are distributed;
beliefs then take the mean and the spread of all curves. Sources count with the root of their number of curves, and the
expert's belief as a source of its own: many curves of one source are not many independent lessons, and beliefs
that come from few sources stay wide.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt

import numpy as np

from steptime.curves.curve import ScalingCurve
from steptime.curves.facts import UNSTATED, facts_of
from steptime.curves.input_ceiling import input_path
from steptime.curves.posterior import Sampling, weigh_samples
from steptime.curves.shape import INDEX, PARAMETERS, NormalPrior, Priors, expert_priors

_EXPERT_CURVES = 16
_ROUNDS = 8
_SAMPLING = Sampling(log_samples=11)

_BEYOND_HOST = {
    "efficiency", "stack_rate", "hidden", "flat", "latency", "host_jump", "host_doubling", "chopping", "crossing",
    "host_walk", "store",
}  # fmt: skip
_WITHIN_HOST = {"contention", "crowding", "inside", "saturation"}

NEVER_LEARNED = {"sharing", "bend", "queueing", "disturbing", *UNSTATED}
"""What lies beyond all known points, what curves of three doublings of hosts or few points near a ceiling hardly show,
and each curve's own unknowns, of which nothing is common to curves."""

Moments = tuple[float, float]
"""Mean and variance."""


def learn(curves: Iterable[ScalingCurve], rounds: int = _ROUNDS) -> dict[str, NormalPrior]:
    """Return beliefs from all points of the curves given."""
    known = list(curves)
    priors: Priors = expert_priors()
    for _ in range(rounds):
        found = [(curve, _moments(curve, priors)) for curve in known]
        priors = {parameter.name: _update(parameter.name, parameter.expert, found) for parameter in PARAMETERS}
    return dict(priors)


def learn_by_source(curves: Sequence[ScalingCurve]) -> dict[str, dict[str, NormalPrior]]:
    """Return beliefs without each source, by its name, and those from all sources under the empty name."""
    sources = ["", *sorted({curve.setup.source for curve in curves})]
    kept = [[curve for curve in curves if curve.setup.source != name] for name in sources]
    with ProcessPoolExecutor() as pool:
        return dict(zip(sources, pool.map(learn, kept), strict=True))


def _moments(curve: ScalingCurve, priors: Priors) -> Mapping[str, Moments]:
    points = sorted((*curve.fit, *curve.holdout), key=lambda point: point.workers)
    weighted = weigh_samples(curve, points, points[-1:], priors, _SAMPLING)
    means = weighted.weights @ weighted.parameters
    variances = weighted.weights @ np.square(weighted.parameters - means)
    return {name: (float(means[INDEX[name]]), float(variances[INDEX[name]])) for name in _spoken_of(curve)}


def _spoken_of(curve: ScalingCurve) -> Collection[str]:
    """Return the parameters that a curve can say anything of."""
    facts, most = facts_of(curve.setup), max(point.workers for point in (*curve.fit, *curve.holdout))
    names = {parameter.name for parameter in PARAMETERS}
    if curve.hosts(most) == 1:
        names -= _BEYOND_HOST
    if curve.setup.host_size == 1:
        names -= _WITHIN_HOST
    names -= NEVER_LEARNED
    if not facts.shared_memory:
        names -= {"bus"}
    if not facts.overlaps:
        names -= {"hidden"}
    path = input_path(curve)
    names -= {name for name, read in (("loaders", path.read), ("store", path.shared)) if not read}
    if facts.half_bytes in {0.0, 1.0}:
        names -= {"half"}
    return names


def _update(name: str, expert: NormalPrior, found: Sequence[tuple[ScalingCurve, Mapping[str, Moments]]]) -> NormalPrior:
    by_source: dict[str, list[Moments]] = {}
    for curve, moments in found:
        if name in moments:
            by_source.setdefault(curve.setup.source, []).append(moments[name])
    groups = [(sqrt(len(members)), members) for members in by_source.values()]
    groups.append((sqrt(_EXPERT_CURVES), [(expert.mean, expert.spread**2)]))
    total = sum(weight for weight, _ in groups)
    mean = sum(weight * float(np.mean([one for one, _ in members])) for weight, members in groups) / total
    variance = (
        sum(weight * float(np.mean([v + (one - mean) ** 2 for one, v in members])) for weight, members in groups)
        / total
    )
    return NormalPrior(mean, sqrt(variance))


def to_json(learned: Mapping[str, Priors], note: str) -> str:
    """Return the text of ``priors.json``."""
    without = {
        name: {
            parameter: [round(prior.mean, 4), round(prior.spread, 4)]
            for parameter, prior in priors.items()
            if parameter not in NEVER_LEARNED
        }
        for name, priors in learned.items()
    }
    return json.dumps({"note": note, "learned_without": without}, indent=1) + "\n"
