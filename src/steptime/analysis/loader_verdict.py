"""The loader verdict: who limits a configuration, and the cheapest change that lifts a limit by the loader.

It compares three things that were measured apart: the loader alone, the training alone (synthetic batches) and both
together. A change that the study has measured is next to its prediction.

The model of the input: P. J. Denning, J. P. Buzen, The operational analysis of queueing network models, ACM Computing
Surveys 10(3), 1978 (utilization law, bottleneck analysis); E. D. Lazowska et al., Quantitative System Performance,
1984, chapter 5 (asymptotic bounds). Its quantities are per step of one worker.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.analysis.loader_form import LoaderAlone, LoaderChange, LoaderRow, LoaderVerdict
from steptime.catalog.choices import SYNTHETIC
from steptime.results.json_form import Interval
from steptime.results.loader_records import LoaderLaunch, LoaderStretch
from steptime.results.records import Launch
from steptime.statistics.estimate import Estimate
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.simultaneous import sidak_level
from steptime.study.trial import Trial
from steptime.units import format_count

_MOST_LOG = 100.0
"""The largest logarithm of a rate that is drawn."""
_DRAWS = 4000
_ROUNDING = 1e-9
"""A relative width of draws that a single launch leaves: no interval."""
_CHEAPEST_FIRST = ("native", "cached", "webdataset", "recordio", "tfrecord", "dali")
"""Loaders by what a change to them costs: nothing, a file of pixels, shards, another library."""
_HELPERS = (1, 2, 4)
"""Numbers of helpers of which a gain is predicted without having been measured."""
_ENOUGH = 1.02
"""A loader is lifted as the limit where the step takes at most so many times as long as the training alone."""

Draws = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredLoading:
    """What was measured of one trial that reads data, or of its counterpart that trains on synthetic batches."""

    trial: Trial
    together: Estimate | None
    """The step time of the timed launches."""
    cpu_s: Sequence[float]
    """Of each timed launch, as ``step_cpu_s`` gives them."""
    alone: Sequence[LoaderLaunch]
    """The launches of the loader alone that ended well."""


@dataclass(frozen=True)
class _Alone:
    """A loader alone, as draws of what its launches leave open, per batch of one worker."""

    launches: int
    first_rate: Draws
    later_rate: Draws | None
    cpu_rate: Draws
    batch_s: Draws
    cpu_s: Draws
    memory_bytes: float
    helpers_memory_bytes: float
    ahead: bool
    dropped: bool | None


@dataclass(frozen=True)
class _Row:
    trial: Trial
    alone: _Alone
    together: Estimate | None
    cpu_s: Draws | None
    """Processor seconds of a step of one worker, training and loading."""


def loader_verdicts(measured: Iterable[MeasuredLoading], cores: float | None) -> list[LoaderVerdict]:
    """Return a verdict for every configuration whose training alone and a loader alone were measured.

    Args:
        measured: the trials of a study.
        cores: physical cores of the host; None if the machine did not say.
    """
    groups: dict[str, list[MeasuredLoading]] = {}
    for each in measured:
        groups.setdefault(_configuration(each.trial), []).append(each)
    found = [_verdict(members, cores) for members in groups.values()]
    return [each for each in found if each is not None]


def step_cpu_s(launches: Iterable[Launch]) -> list[float]:
    """Return the processor seconds of a step of one worker and its helpers, for each launch that counted them."""
    return [
        _mean([_used(worker.usage) / len(worker.ends_s) for worker in launch.workers])
        for launch in launches
        if launch.status == "ok"
        and launch.workers
        and all(each.ends_s and _used(each.usage) for each in launch.workers)
    ]


def _configuration(trial: Trial) -> str:
    """Return what trials have in common that differ in their loader, its helpers and its data only."""
    return trial.model_copy(update={"loader": "", "loader_processes": 0, "dataset": None}).id


def _verdict(members: Sequence[MeasuredLoading], cores: float | None) -> LoaderVerdict | None:
    trained = next((each for each in members if each.trial.loader == SYNTHETIC.name and each.together), None)
    rows = [row for each in sorted(members, key=lambda each: _cost(each.trial)) if (row := _row(each))]
    if trained is None or trained.together is None or not rows:
        return None
    training = trained.trial
    training_s = _draws_of(trained.together, 0)
    training_cpu = _cpu_draws(trained)
    changes = _changes(rows, training_s, training_cpu)
    return LoaderVerdict(
        title=_title(training),
        framework=training.framework,
        strategy=training.strategy,
        workload=training.workload,
        workers=training.workers,
        batch_per_worker=training.batch_per_worker,
        training_trial=training.id,
        training_s=_range(training_s),
        rows=[_row_form(row, training_s, training_cpu, cores, sidak_level(LEVEL, len(rows))) for row in rows],
        changes=changes,
        cheapest=next((index for index, change in enumerate(changes) if change.lifts), None),
    )


def _title(trial: Trial) -> str:
    workers = format_count(trial.workers, "worker")
    size = "x".join(map(str, trial.input_shape))
    settings = "".join(f", {name}={value}" for name, value in trial.environment_variables.items())
    what = f"{trial.framework} {trial.strategy}, {trial.workload} ({size}), {workers}"
    return f"{what}, batch {trial.batch_per_worker} per worker, {trial.precision}, {trial.device}{settings}"


def _cost(trial: Trial) -> tuple[int, int, str]:
    known = trial.loader in _CHEAPEST_FIRST
    order = _CHEAPEST_FIRST.index(trial.loader) if known else len(_CHEAPEST_FIRST)
    return order, trial.loader_processes, trial.dataset or ""


def _row(measured: MeasuredLoading) -> _Row | None:
    alone = _alone(measured.trial, measured.alone)
    if measured.trial.loader == SYNTHETIC.name or alone is None:
        return None
    return _Row(measured.trial, alone, measured.together, _cpu_draws(measured))


def _alone(trial: Trial, launches: Sequence[LoaderLaunch]) -> _Alone | None:
    if not launches:
        return None
    batch = trial.batch_per_worker
    first, later = ([_stretches(launch, name) for launch in launches] for name in ("first", "later"))
    steady = later if all(later) else first
    cpu_s = [_mean([_cpu_of(stretch) / len(stretch.ends_s) for stretch in stretches]) for stretches in steady]
    slowest = [max(map(_batch_s, stretches)) for stretches in steady]
    usages = [stretch.usage for stretches in steady for stretch in stretches]
    return _Alone(
        launches=len(launches),
        first_rate=_draws(_rates(first, batch), trial.id, 1),
        later_rate=_draws(_rates(later, batch), trial.id, 2) if all(later) else None,
        cpu_rate=batch / _draws(cpu_s, trial.id, 3),
        batch_s=_draws(slowest, trial.id, 4),
        cpu_s=_draws(cpu_s, trial.id, 3),
        memory_bytes=_mean([usage.get("memory_bytes", 0.0) for usage in usages]),
        helpers_memory_bytes=_mean([usage.get("helpers_memory_bytes", 0.0) for usage in usages]),
        ahead=any(worker.batches_ahead for launch in launches for worker in launch.workers),
        dropped=_were_dropped(launches),
    )


def _rates(launches: Sequence[Sequence[LoaderStretch]], batch: int) -> list[float]:
    """Return the samples per second of all workers of each launch."""
    return [sum(batch / _batch_s(stretch) for stretch in stretches) for stretches in launches]


def _were_dropped(launches: Sequence[LoaderLaunch]) -> bool | None:
    """Whether the page cache was dropped ahead of all launches; None if one does not know."""
    dropped = [launch.page_cache.dropped if launch.page_cache else None for launch in launches]
    return None if None in dropped else all(dropped)


def _stretches(launch: LoaderLaunch, name: str) -> list[LoaderStretch]:
    return [stretch for worker in launch.workers for stretch in worker.stretches if stretch.name == name]


def _batch_s(stretch: LoaderStretch) -> float:
    return (stretch.ends_s[-1] - stretch.origin_s) / len(stretch.ends_s)


def _cpu_of(stretch: LoaderStretch) -> float:
    return max(1e-6, stretch.usage.get("cpu_s", 0.0) + stretch.usage.get("helpers_cpu_s", 0.0))


def _cpu_draws(measured: MeasuredLoading) -> Draws | None:
    """Return the processor seconds of a timed step of one worker and its helpers; None if not counted."""
    return _draws(measured.cpu_s, measured.trial.id, 5) if measured.cpu_s else None


def _used(usage: Mapping[str, float]) -> float:
    return usage.get("cpu_s", 0.0) + usage.get("helpers_cpu_s", 0.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row_form(row: _Row, training_s: Draws, training_cpu: Draws | None, cores: float | None, level: float) -> LoaderRow:
    """Return the row; ``level`` is that of the comparison of loading with training, which all rows of a table make."""
    trial, alone = row.trial, row.alone
    measured = _draws_of(row.together, 6) if row.together else None
    loading = alone.batch_s / training_s
    ratio = _range(loading, level)
    low, high = (ratio.low, ratio.high) if ratio.low is not None and ratio.high is not None else (ratio.value,) * 2
    needed = None if training_cpu is None else training_cpu + alone.cpu_s
    return LoaderRow(
        trial=trial.id,
        loader=trial.loader,
        processes=trial.loader_processes,
        dataset=trial.dataset,
        alone=LoaderAlone(
            launches=alone.launches,
            first_epoch_samples_per_s=_range(alone.first_rate),
            later_epochs_samples_per_s=None if alone.later_rate is None else _range(alone.later_rate),
            samples_per_cpu_s=_range(alone.cpu_rate),
            memory_bytes=alone.memory_bytes,
            helpers_memory_bytes=alone.helpers_memory_bytes,
            page_cache_dropped=alone.dropped,
        ),
        together_samples_per_s=None if measured is None else _range(trial.global_batch / measured),
        together_samples_per_cpu_s=None if row.cpu_s is None else _range(trial.batch_per_worker / row.cpu_s),
        step_s=None if measured is None else _range(measured),
        predicted_step_s=_range(_predicted(row, training_s, training_cpu)),
        limit="loader" if low > 1.0 else "training" if high < 1.0 else "undecided",
        loading_over_training=ratio,
        waited_share=None if measured is None else _range(1.0 - training_s / measured),
        workers_per_host=None
        if needed is None or cores is None
        else _range(workers_per_host(training_s, needed, cores)),
        device_samples_per_s=_range(device_factor(training_s, alone.batch_s) * trial.batch_per_worker / training_s),
    )


def _predicted(row: _Row, training_s: Draws, training_cpu: Draws | None) -> Draws:
    cores = row.trial.cores_per_worker or row.trial.threads
    cpu = row.alone.cpu_s + (training_s if training_cpu is None else training_cpu)
    return step_s(training_s, row.alone.batch_s, cpu, cores, ahead=row.alone.ahead)


def _changes(rows: Sequence[_Row], training_s: Draws, training_cpu: Draws | None) -> list[LoaderChange]:
    """Return what other loaders and helpers would make of the first row, cheapest first."""
    base = rows[0]
    explained = _predicted(base, training_s, training_cpu)
    now = _draws_of(base.together, 6) if base.together else explained
    # A step that is longer than loading and training explain was held up by something that no loader lifts.
    if min(float(np.median(step / training_s)) for step in (now, explained)) <= _ENOUGH:
        return []
    limit = float(np.median(training_s)) * _ENOUGH
    found: list[tuple[Trial, str | None, Draws, Interval | None]] = []
    level = sidak_level(LEVEL, sum(row.together is not None for row in rows[1:]))
    for row in rows[1:]:
        predicted = _predicted(row, training_s, training_cpu)
        measured = _range(now / _draws_of(row.together, 7), level) if row.together else None
        found.append((row.trial, row.trial.id, predicted, measured))
    if not base.alone.ahead:
        own = base.trial
        there = {row.trial.loader_processes for row in rows if _same_but_helpers(row.trial, own)}
        cores = own.cores_per_worker or own.threads
        cpu = base.alone.cpu_s + (training_s if training_cpu is None else training_cpu)
        for helpers in set(_HELPERS) - there:
            helped = own.model_copy(update={"loader_processes": helpers})
            found.append((helped, None, step_s(training_s, base.alone.batch_s / helpers, cpu, cores, ahead=True), None))
    return [
        LoaderChange(
            loader=trial.loader,
            processes=trial.loader_processes,
            dataset=trial.dataset,
            trial=trial_id,
            predicted_gain=_range(now / predicted),
            measured_gain=measured,
            lifts=float(np.median(predicted)) <= limit,
        )
        for trial, trial_id, predicted, measured in sorted(found, key=lambda each: _cost(each[0]))
    ]


def _same_but_helpers(one: Trial, other: Trial) -> bool:
    return one.model_copy(update={"loader_processes": other.loader_processes}).id == other.id


def _draws_of(found: Estimate, stream: int) -> Draws:
    """Return draws of a step time whose logarithm spreads as its interval."""
    deviation = math.log(found.high / found.low) / (2 * statistics.NormalDist().inv_cdf((1 + found.level) / 2))
    normal = np.random.default_rng([stream, found.steps]).standard_normal(_DRAWS)
    return np.asarray(found.mean * np.exp(deviation * normal), dtype=np.float64)


def _draws(values: Sequence[float], *seed: Any) -> Draws:  # noqa: ANN401 - words and numbers
    """Return draws of the geometric mean of launches, by Student's t; all the same where there is one launch."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    if len(logs) == 1:
        return np.full(_DRAWS, float(np.exp(logs[0])))
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    numbers = [sum(str(each).encode()) for each in seed]
    drawn = np.random.default_rng(numbers).standard_t(len(logs) - 1, _DRAWS)
    limit = float(t_quantile(len(logs) - 1, 0.999))
    drawn = logs.mean() + error * np.clip(drawn, -limit, limit)
    # Two launches far apart say nothing, in numbers that can still be multiplied.
    return np.asarray(np.exp(np.clip(drawn, -_MOST_LOG, _MOST_LOG)), dtype=np.float64)


def _range(draws: Draws, level: float = LEVEL) -> Interval:
    low, value, high = (float(each) for each in np.quantile(draws, [0.5 - level / 2, 0.5, 0.5 + level / 2]))
    if high - low <= _ROUNDING * abs(value):
        return Interval(value, None, None)
    return Interval(value=value, low=low, high=high)


def step_s(training_s: Draws, loading_s: Draws, cpu_s: Draws, cores: int, *, ahead: bool) -> Draws:
    """Return the seconds of a step that loads its batch and trains on it.

    A loader that makes no batch ahead is a part of the step: ``T = M + L``. One that does works at the same time as
    the training: the step takes as long as the slowest of loader, training and the worker's cores,
    ``T = max(M, L, c / C)``.

    Args:
        training_s: M, a step on a batch that is there.
        loading_s: L, between two batches of the loader alone.
        cpu_s: c, processor seconds of training and loading one batch.
        cores: C, on which the worker and its helpers run.
        ahead: whether batches are made ahead.

    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 1, ahead=False))
    5.0
    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 1, ahead=True))
    4.0
    >>> float(step_s(np.array(2.0), np.array(3.0), np.array(4.0), 4, ahead=True))
    3.0
    """
    if not ahead:
        return training_s + loading_s
    return np.maximum(np.maximum(training_s, loading_s), cpu_s / cores)


def workers_per_host(training_s: Draws, cpu_s: Draws, cores: float) -> Draws:
    """Return from how many workers of one host on its processors are busy: ``n = C M / c``.

    By the utilization law, n workers that each take c processor seconds in every M seconds keep n c / M processors
    busy; a host has C. Beyond, every worker waits for its batches, whatever the number of helpers.

    Args:
        training_s: M, a step on a batch that is there.
        cpu_s: c, processor seconds of training and loading one batch.
        cores: C, of the host.
    """
    return cores * training_s / cpu_s


def device_factor(training_s: Draws, loading_s: Draws) -> Draws:
    """Return how many times as fast as here a device must train for this loader to become the limit: ``M / L``.

    Below 1 where the loader is the limit already.
    """
    return training_s / loading_s
