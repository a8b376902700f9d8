"""The average measured ratio of two sets of trials, to compare with a ratio that others published.

The tiers of a study's options: the race of a trial, and what the tier ``tuned`` changes and gains.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from steptime.analysis.summary_form import OptionChange, PublishedRatio, TunedTrial
from steptime.catalog.cluster import Cluster
from steptime.catalog.options import Tuning
from steptime.results.json_form import Interval
from steptime.statistics.comparison import Comparison, Measured, compare_trials
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.simultaneous import sidak_level
from steptime.study.trial import Trial


@dataclass(frozen=True)
class AverageRatio:
    """The geometric mean of ratios of step times; all None if no pair was measured."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    pairs: int = 0
    """Pairs of trials over which the mean is taken."""


def published_ratios(claims: Sequence[Mapping[str, Any]], measured: Sequence[Measured]) -> list[PublishedRatio]:
    """Return what a study claims beside what ``measured`` trials show, with simultaneous intervals."""
    ratios = [(claim, average_ratio(claim, measured, sidak_level(LEVEL, len(claims)))) for claim in claims]
    return [
        PublishedRatio(
            claim=claim["claim"],
            source=claim["source"],
            published=claim.get("ratio"),
            machine=claim.get("machine"),
            measured=Interval(value=ratio.value, low=ratio.low, high=ratio.high),
            least=ratio.least,
            most=ratio.most,
            pairs=ratio.pairs,
        )
        for claim, ratio in ratios
    ]


def average_ratio(claim: Mapping[str, Any], measured: Iterable[Measured], level: float = LEVEL) -> AverageRatio:
    """Return the step time of the claim's ``slower`` trials divided by that of its ``faster`` ones.

    Every pair of trials of one group (the same workload, input, batch and number of workers) counts alike. Where the
    claim is about ``loaders``, ``workers`` or ``batch_per_worker``, the trials of a pair are of the same framework, and
    differ in nothing but their loader and its helpers, their workers, or their batch: the ratio is then that of the
    times of as many samples. The mean is geometric, so that swapping the sides inverts it. The interval holds what
    launches leave open of this mean; it does not hold for unmeasured workloads. Pairs that share a trial are
    taken for independent, which makes the interval too narrow by a factor of at most the square root of how often a
    trial is shared: it is widened by that factor.

    Args:
        claim: an item of the study's ``published``.
        measured: the trials that may be compared.
        level: the share of such intervals that hold the truth.
    """
    sides = (claim["slower"], claim["faster"])
    about = {axis for axis in ("loaders", "workers", "batch_per_worker") if any(side.get(axis) for side in sides)}
    groups: dict[str, list[Measured]] = {}
    for each in measured:
        groups.setdefault(_counterpart_key(each.trial, about) if about else each.trial.group, []).append(each)
    found: list[Comparison] = []
    uses = Counter[str]()
    for members in groups.values():
        for slow in _chosen(claim["slower"], members):
            for fast in (each for each in _chosen(claim["faster"], members) if _same_data(slow.trial, each.trial)):
                found.append(_per_sample(compare_trials(slow, fast), slow.trial, fast.trial))
                uses.update([slow.trial.id, fast.trial.id])
    return _mean(found, max(uses.values(), default=1), level)


def _counterpart_key(trial: Trial, about: Container[str]) -> str:
    """Return what trials have in common that differ in their loaders, their workers or their batches only."""
    changes: dict[str, Any] = {}
    if "loaders" in about:
        changes |= {"loader": "", "loader_processes": 0, "dataset": None}
    if "workers" in about:
        changes |= {"workers": 0, "strategy": "", "options": {}, "hosts": 1, "launcher": ""}
        changes |= {"cluster": _kind_of_hosts(trial)}
    if "batch_per_worker" in about:
        changes |= {"batch_per_worker": 0}
    return trial.model_copy(update=changes).id


def _kind_of_hosts(trial: Trial) -> Cluster | None:
    """Return the cluster with one host of each kind, which trials of all numbers of workers on such hosts share."""
    cluster = trial.cluster
    return cluster and cluster.model_copy(update={"hosts": tuple(dict.fromkeys(cluster.hosts)), "worker_hosts": 1})


def _same_data(one: Trial, other: Trial) -> bool:
    """Whether both read the same dataset; synthetic batches stand for any."""
    return one.dataset == other.dataset or None in {one.dataset, other.dataset}


def _per_sample(found: Comparison, slow: Trial, fast: Trial) -> Comparison:
    """Return the ratio of the times of as many samples; that of the steps where both have as large a batch."""
    factor = fast.global_batch / slow.global_batch
    names = ("ratio", "low", "high", "least", "most")
    return replace(found, **{name: factor * getattr(found, name) for name in names})


def _chosen(side: Mapping[str, Any], members: Iterable[Measured]) -> list[Measured]:
    axes = {
        "frameworks": "framework",
        "strategies": "strategy",
        "workloads": "workload",
        "loaders": "loader",
        "workers": "workers",
        "batch_per_worker": "batch_per_worker",
    }
    return [
        each
        for each in members
        if all(side.get(axis) is None or getattr(each.trial, field) in side[axis] for axis, field in axes.items())
    ]


def _mean(found: Sequence[Comparison], shared: int, level: float) -> AverageRatio:
    if not found:
        return AverageRatio()
    logs = np.log([each.ratio for each in found])
    variances = np.array([each.error**2 for each in found])
    total = float(variances.sum())
    uncertainty = sum(part**2 / each.freedom for part, each in zip(variances, found, strict=True))
    freedom = total**2 / uncertainty if uncertainty > 0.0 else min(each.freedom for each in found)
    half_width = float(t_quantile(freedom, level)) * np.sqrt(total * shared) / len(found)
    centre = float(logs.mean())
    return AverageRatio(
        value=float(np.exp(centre)),
        low=float(np.exp(centre - half_width)),
        high=float(np.exp(centre + half_width)),
        least=float(np.exp(logs.min())),
        most=float(np.exp(logs.max())),
        pairs=len(found),
    )


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

    The intervals of all these ratios are simultaneous.

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
