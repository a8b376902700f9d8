"""A user's own script on other numbers of workers: a profile of one attached run and a link, and what follows from it.

What a worker computes stays; its gradients go in the same buckets, each when its last gradient is ready, over the link
of the same back end one after the other (``model/synchronous_sgd.py``); parameters that are sharded (FSDP) are gathered
and their gradients scattered when the calls of the recorded step ask for it; every step waits for the slowest worker of
that step (``model/compute.py``). Workers beyond the cores of their host take turns (``model/shared_cores.py``). Where
the attached run had several workers, its exposed transfer over the modelled one corrects the model.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

import numpy as np

from steptime.fitting.attached_link import AttachedLink
from steptime.fitting.attached_profile import AttachedProfile, Call
from steptime.fitting.fit import USUAL_LAUNCH_SPREAD
from steptime.fitting.posterior import Array, draw_factors, fit_level
from steptime.model.collectives import Link, all_gather, reduce_scatter, ring
from steptime.model.synchronous_sgd import finish, waited
from steptime.model.worker_spread import expected_maximum
from steptime.predict.next_measurement import RESULTS
from steptime.predict.uncertainty import Extrapolation, ratio_outside, skewed
from steptime.predict.worker_ratio import WorkerRatio, shared_normal, worker_ratio
from steptime.results.json_form import Interval
from steptime.units import format_bit_rate, format_count

_BITS = 8
_DRAWS = 4000
_LEVEL = (0.05, 0.95)
_CORRECTION = (0.2, 5.0)
"""Of the modelled transfer; beyond, the link is not that of the run."""


@dataclass(frozen=True)
class AttachedPrediction:
    """A step with so many workers, with an interval of 90 %; the numbers are None if it is refused."""

    workers: int
    step_s: Interval | None
    efficiency: float | None
    """Of one predicted worker of the same batch."""
    exposed_s: float | None
    waiting_s: float | None
    extrapolation: float | None
    refused: str | None = None
    over: str = ""
    """The hosts of its workers and the link between them; empty of one worker, or where it is refused."""
    between_hosts: bool = False
    tokens_per_s: Interval | None = None
    """Of all workers; None where the run showed no tokens."""
    mfu: Interval | None = None
    draws_s: Array | None = field(default=None, compare=False, repr=False)
    """Of the step, (draws,)."""

    def to_json(self) -> dict[str, object]:
        """Return all but the draws."""
        return {name: value for name, value in asdict(replace(self, draws_s=None)).items() if name != "draws_s"}


def predict_attached(profile: AttachedProfile, workers: Sequence[int]) -> list[AttachedPrediction]:
    """Return a prediction for each number of workers with the same batch per worker, or why there is none."""
    found = [_predicted(profile, count) for count in workers]
    alone = _predicted(profile, 1).step_s
    return [
        replace(each, efficiency=alone.value / each.step_s.value) if alone and each.step_s else each for each in found
    ]


def _predicted(profile: AttachedProfile, workers: int) -> AttachedPrediction:
    refused = profile.refused or _too_far(profile, workers)
    if refused:
        return AttachedPrediction(workers, None, None, None, None, None, refused)
    link, own = profile.link_for(workers), profile.link
    assert link is not None and own is not None  # noqa: S101, PT018 - refused otherwise
    correction = _correction(profile, own)
    if not _CORRECTION[0] <= correction <= _CORRECTION[1]:
        reason = (
            f"the measured transfer is {correction:.2g} times what the link gives: it is not the link of the run; "
            "measure it on the same hosts"
        )
        return AttachedPrediction(workers, None, None, None, None, None, reason)
    step = _step(profile, link, workers, correction)
    rng = np.random.default_rng(0)
    draws = step.drawn_s(
        profile, rng.standard_normal(_DRAWS), step.extrapolation.of_waiting * rng.standard_normal(_DRAWS)
    )
    # One launch shows nothing of how launches differ: the profile's by Student's t, and the one that is predicted.
    draws *= fit_level(np.ones(1), rng, _DRAWS).draws[:, 0] * _launched(profile, rng)
    draws *= np.exp(step.turns * rng.standard_normal(_DRAWS))
    low, high = np.quantile(draws, _LEVEL)
    value = step.value_s(profile)
    step_s = Interval[float, float](value, min(float(low), value), max(float(high), value))
    return AttachedPrediction(
        workers,
        step_s,
        None,
        step.exposed_s,
        step.waiting_s,
        step.extrapolation.factor,
        tokens_per_s=_rate_of(step_s, profile.tokens and workers * profile.tokens),
        mfu=_rate_of(step_s, profile.at_peak_s),
        draws_s=draws,
        over=_over(profile, link, workers),
        between_hosts=link.between_hosts,
    )


def _over(profile: AttachedProfile, link: AttachedLink, workers: int) -> str:
    """Return ``on 4 hosts of 2, gloo at 735 Mbit/s (timed between 4 emulated hosts with links of 10 Gbit/s)``."""
    if workers == 1:
        return ""
    rate = f"{link.back_end} at {format_bit_rate(_BITS * link.rate)}"
    if not link.between_hosts:
        return f"on one host, {rate}"
    each = max(1, profile.workers)
    hosts = f"{format_count(math.ceil(workers / each), 'host')} of {min(workers, each)}"
    among = f"timed with {link.workers} workers" + (f" on {format_count(link.hosts, 'host')}" if link.hosts else "")
    if link.nominal_rate:
        among += f", emulated with links of {format_bit_rate(_BITS * link.nominal_rate)}"
    return f"on {hosts}, {rate} ({among})"


@dataclass(frozen=True)
class _ScriptStep:
    """What a step of so many workers follows from."""

    slower: float
    turns: float
    """Standard deviation of the logarithm of ``slower``."""
    exposed_s: float
    waiting_s: float
    extrapolation: Extrapolation

    def value_s(self, profile: AttachedProfile) -> float:
        return self.slower * profile.computing_s + self.exposed_s + self.waiting_s

    def drawn_s(self, profile: AttachedProfile, computing: Array, longer: Array) -> Array:
        """Return draws by those of computing, standard normal, and of the logarithm by which messages take longer."""
        computing_s = self.slower * (profile.computing_s + profile.computing_error_s * computing)
        scale = max(self.extrapolation.of_waiting, 1e-12)
        waits_s = (self.exposed_s + self.waiting_s) * np.exp(scale * skewed(longer / scale))
        drawn: Array = np.maximum(computing_s, 1e-12) + waits_s
        return drawn


def _step(profile: AttachedProfile, link: AttachedLink, workers: int, correction: float) -> _ScriptStep:
    own_hosts = link.between_hosts and profile.link is not None and not profile.link.between_hosts
    # Each of further hosts is as full as that of the run.
    slower, turns = (1.0, 0.0) if own_hosts else _slowdown(profile, workers)
    exposed_s = _exposed_s(profile, link, workers, slower) * correction
    # One worker has never met another, as workers of one host have never met another host.
    extrapolation = Extrapolation(
        workers=ratio_outside(workers, [1.0, float(profile.workers)]),
        crosses=profile.workers < 2 <= workers or own_hosts,  # noqa: PLR2004
    )
    return _ScriptStep(slower, turns, exposed_s, _waiting_s(profile, workers) * slower, extrapolation)


def _launched(profile: AttachedProfile, rng: np.random.Generator) -> Array:
    """Return draws of how many times as long a launch takes as another; others may take none of its time, or more."""
    drawn: Array = draw_factors(USUAL_LAUNCH_SPREAD, rng, _DRAWS)
    return drawn * (1.0 - profile.delayed) ** rng.uniform(-1.0, 1.0, _DRAWS)


def attached_ratios(profile: AttachedProfile, predictions: Sequence[AttachedPrediction]) -> list[WorkerRatio]:
    """Return each predicted number of workers over the one before it, of predictions that are not refused.

    Both share the profile, and the model's error as far as both are from it; not how their launches differ.
    """
    link = profile.link
    if link is None:
        return []
    correction = _correction(profile, link)
    known = sorted({each.workers for each in predictions if each.step_s is not None})
    steps = {count: _step(profile, profile.link_for(count) or link, count, correction) for count in known}
    return [_ratio(profile, pair, (steps[pair[0]], steps[pair[1]])) for pair in pairwise(known)]


def _ratio(profile: AttachedProfile, workers: tuple[int, int], steps: tuple[_ScriptStep, _ScriptStep]) -> WorkerRatio:
    rng = np.random.default_rng(1)
    computing, waits, turns = rng.standard_normal((3, _DRAWS))
    parts = [each.extrapolation.parts for each in steps]
    both = math.hypot(*(min(parts[0][name], parts[1][name]) for name in ("workers", "crosses")))
    slower = min(each.turns for each in steps)
    seconds = []
    for count, step in zip(workers, steps, strict=True):
        longer = shared_normal(waits, both, step.extrapolation.of_waiting, rng)
        factor = _launched(profile, rng) * np.exp(shared_normal(turns, slower, step.turns, rng))
        seconds.append(step.drawn_s(profile, computing, longer) * factor / count)
    value = steps[1].value_s(profile) / steps[0].value_s(profile) * workers[0] / workers[1]
    return worker_ratio(workers, (seconds[0], seconds[1]), value)


def _rate_of(step_s: Interval[float, float], amount: float | None) -> Interval | None:
    """Return an amount of each step over what that takes."""
    return None if amount is None else Interval(*(amount / each for each in (step_s.value, step_s.high, step_s.low)))


def _too_far(profile: AttachedProfile, workers: int) -> str | None:
    link = profile.link_for(workers)
    if link is None or workers <= max(1, profile.workers):
        return None
    if not link.between_hosts and workers > link.workers:
        return (
            f"{workers} workers need a link that was not measured: of {link.back_end} there are at most {link.workers} "
            f"on one host; measure as many there: {timing_command(profile, workers)}, or between hosts: "
            f"{timing_command(profile, workers, between_hosts=True)} (or --launcher ssh --hosts NAME,NAME); then fit "
            f"again: steptime fit {RESULTS}"
        )
    if not link.between_hosts and not profile.on_device and workers > profile.cores > 0 and not profile.shared_cores:
        return (
            f"{workers} workers would share the {profile.cores:g} cores of the host, and how many threads each keeps "
            "busy is not on record; attach to it again"
        )
    return None


def timing_command(profile: AttachedProfile, workers: int, *, between_hosts: bool = False) -> str:
    """Return the command that times messages of so many workers, on this host or between emulated ones."""
    back_end = profile.link.back_end if profile.link else "gloo"
    hosts = max(2, math.ceil(workers / max(1, profile.workers)))
    emulated = f" --launcher emulated --hosts {hosts} --bandwidth 10Gbit/s" if between_hosts else ""
    return f"steptime net {back_end} --workers {workers}{emulated} -o {RESULTS}"


def _slowdown(profile: AttachedProfile, workers: int) -> tuple[float, float]:
    """Return how many times as long as in the run a worker computes, and the deviation of the logarithm of that."""
    shared = profile.shared_cores
    if shared is None:
        return 1.0, 0.0
    asked, measured = shared.slowdown(np.array([workers, profile.workers], dtype=float))
    return float(asked / measured), shared.deviation(workers, profile.workers)


def _exposed_s(profile: AttachedProfile, link: AttachedLink, workers: int, slower: float = 1.0) -> float:
    """Return the seconds that a step waits for messages: of buckets, from the end of the backward pass to the last.

    A worker that computes so many times ``slower`` has its gradients as much later.
    """
    if workers < 2:  # noqa: PLR2004 - it sends to no other
        return 0.0
    if profile.calls:
        return _waited_s(profile.calls, link, workers, slower)
    backward_s = profile.backward_s * slower
    sizes = np.array([bucket.bytes for bucket in profile.buckets], dtype=np.float64)
    ready = np.array([bucket.ready for bucket in profile.buckets]) * backward_s
    lasting = np.asarray(ring(sizes, float(workers), Link(link.rate, link.start_s)))
    buffers_s = math.ceil(math.log2(workers)) * (link.start_s + profile.buffers / link.rate) if profile.buffers else 0.0
    return buffers_s + float(max(0.0, float(finish(ready, lasting)) - backward_s))


def _waited_s(calls: Sequence[Call], link: AttachedLink, workers: int, slower: float) -> float:
    between = Link(link.rate, link.start_s)
    models = {"gather": all_gather, "scatter": reduce_scatter, "reduce": ring}
    if link.back_end == "gloo":  # it reduces the whole on every worker: ProcessGroupGloo of PyTorch 2.13
        models["scatter"] = ring
    lasting = [0.0 if each.kind == "wait" else float(models[each.kind](each.bytes, workers, between)) for each in calls]
    return waited([each.after_s * slower for each in calls], [each.kind != "wait" for each in calls], lasting)


def _correction(profile: AttachedProfile, link: AttachedLink) -> float:
    modelled = _exposed_s(profile, link, profile.workers)
    return profile.exposed_s / modelled if modelled > 0.0 and profile.exposed_s > 0.0 else 1.0


def _waiting_s(profile: AttachedProfile, workers: int) -> float:
    """Return the mean waiting: that of the run, and what the slowest of more workers is slower than that of fewer."""
    if workers < 2:  # noqa: PLR2004 - it waits for no other
        return 0.0
    if profile.workers < 2:  # noqa: PLR2004
        return profile.spread_s * expected_maximum(workers)
    if profile.one_is_slow:  # all but that one wait
        return profile.waiting_s * (1.0 - 1.0 / workers) / (1.0 - 1.0 / profile.workers)
    return profile.waiting_s * expected_maximum(workers) / expected_maximum(profile.workers)


def refused_changes(profile: AttachedProfile, overrides: Sequence[str], workers: Sequence[int]) -> list[str]:
    """Return what is wrong with a question that changes more than the number of workers, all of it; else nothing."""
    if not overrides:
        return []
    command = timing_command(profile, max(2, *workers), between_hosts=True)
    changes = (
        f"{', '.join(overrides)}: of an attached run only --workers can change; its batch and strategy are those of "
        f"the run; a link is what was timed: {command}, then fit again: steptime fit {RESULTS}"
    )
    reasons = dict.fromkeys(each.refused for each in predict_attached(profile, workers) if each.refused)
    return [changes, *reasons]
