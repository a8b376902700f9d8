"""What a step would take if one thing were otherwise, simulated from the records of its breakdown.

- without the slowest worker: the longest of the others' computing, step by step, in place of the longest of all. The
  exchange is left as it is, though it would have one worker less.
- without waiting for input: the step less that phase.
- a network twice as fast (an exchange, within one host): pieces of gradients are ready when they were, and each travels
  in half the time, one behind the other as they did, and no step gains more than half of its communication; where the
  framework shows no pieces, half of the exposed communication is left.
- perfect overlap: communication is covered as far as there is computing to cover it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.analysis.ablation.nested_stages import nested_phases
from steptime.analysis.ablation.stages import (
    Array,
    StageTimes,
    communication_s,
    over_blocks,
    stage_times_of,
)
from steptime.catalog.choices import strategy_named
from steptime.diagnosis.form import Scenario
from steptime.results.ablation_records import AblationLaunch, WorkerAblation
from steptime.results.json_form import Interval
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.statistics.interval import from_log
from steptime.study.trial import Trial

_TWO = 2


@dataclass(frozen=True)
class _BrokenDownLaunch:
    """One launch of a breakdown, of every block."""

    times: StageTimes
    step: Array
    phases: dict[str, Array | None]
    communication: float | None
    sooner: float | None
    """By how much the last piece would be back sooner on a network twice as fast; None without pieces."""


def scenarios(store: Store) -> list[Scenario]:
    """Return all scenarios of the trials of a results folder that were broken down."""
    return [each for trial in store.trials() for each in scenarios_of(trial, store.records(ABLATION, trial.id))]


def scenarios_of(trial: Trial, launches: Sequence[AblationLaunch]) -> list[Scenario]:
    """Return what the step of a trial would take; empty without a launch that ended well."""
    synchronous = strategy_named(trial.strategy).synchronous
    good = [each for each in launches if each.status == "ok" and each.workers]
    read = []
    every = stage_times_of(good)
    if not every:
        return []
    nested = nested_phases(every, synchronous=synchronous, workers=trial.workers, cuda=trial.device == "cuda")
    for launch, times, phases in zip(good, every, nested.launches, strict=True):
        known = communication_s(launch, times, synchronous=synchronous)
        whole = float(known[0].mean()) if known else None
        read.append(_BrokenDownLaunch(times, times.means("step"), phases, whole, sooner_s(launch.workers)))
    return list(_of(trial, read)) if read else []


def _without_slowest(launch: _BrokenDownLaunch) -> Array | None:
    if launch.times.alone is None:
        return None
    blocks = launch.times.stages[launch.times.alone]
    slowest = int(np.mean([block.mean(axis=1) for block in blocks], axis=0).argmax())
    return np.array([(block.max(axis=0) - np.delete(block, slowest, axis=0).max(axis=0)).mean() for block in blocks])


def _quicker(launch: _BrokenDownLaunch) -> Array | None:
    exposed = launch.phases.get("comm_exposed")
    if exposed is None:
        return None
    whole = launch.communication
    if launch.sooner is None or whole is None:
        return exposed / 2
    # Pieces also wait for servers and other workers, which no network makes quicker.
    return np.minimum(np.maximum(exposed, 0.0), min(launch.sooner, whole / 2))


def _covered(launch: _BrokenDownLaunch) -> Array | None:
    exposed, passes = launch.phases.get("comm_exposed"), launch.phases.get("backward")
    if exposed is None or passes is None or launch.communication is None:
        return exposed
    left = np.maximum(0.0, launch.communication - passes)
    return np.maximum(0.0, exposed - left)


_CHANGES: tuple[tuple[str, Callable[[_BrokenDownLaunch], Array | None]], ...] = (
    ("without the slowest worker", _without_slowest),
    ("without waiting for input", lambda launch: launch.phases.get("input_wait")),
    ("with a network twice as fast", _quicker),
    ("with perfect overlap", _covered),
)
"""What is changed, and the seconds that it takes off a step; None if it is unknown."""


def _of(trial: Trial, launches: Sequence[_BrokenDownLaunch]) -> Iterator[Scenario]:
    for change, saved_by in _CHANGES:
        if trial.workers == 1 and change != "without waiting for input":
            continue
        if trial.workers == _TWO and change == "without the slowest worker":
            continue  # the other one alone is another trial
        saved = [saved_by(each) for each in launches]
        known = [
            np.clip(each, 0.0, 0.99 * own.step) for each, own in zip(saved, launches, strict=True) if each is not None
        ]
        if len(known) < len(launches):
            continue
        steps = [own.step - each for each, own in zip(known, launches, strict=True)]
        speedup = _ratio_of_means([own.step for own in launches], steps)
        step_s = float(np.mean([blocks.mean() for blocks in steps]))
        yield Scenario(trial=trial.id, change=_named(change, trial), step_s=step_s, speedup=speedup)


def _ratio_of_means(before: Sequence[Array], after: Sequence[Array]) -> Interval:
    """Return one mean step over another: of one trial, all scenarios have the mean step of its breakdown in common.

    The interval is that of the logarithm, to first order in how blocks differ from their mean.
    """
    means = [float(np.mean([blocks.mean() for blocks in own])) for own in (before, after)]
    ratio = np.log(means[0] / means[1])
    logs = over_blocks([ratio + one / means[0] - other / means[1] for one, other in zip(before, after, strict=True)])
    low, high = (None if bound is None else from_log(bound) for bound in (logs.low, logs.high))
    return Interval(from_log(logs.value), low, high)


def _named(change: str, trial: Trial) -> str:
    """Return a change as it is called for a trial: processes of one host exchange over no network."""
    alone = trial.hosts == 1 and trial.cluster is None
    return change.replace("a network", "an exchange") if alone else change


def sooner_s(workers: Sequence[WorkerAblation]) -> float | None:
    """Return by how many seconds a step's last piece would be back sooner if each travelled in half the time.

    None of workers whose framework shows no pieces.

    >>> from types import SimpleNamespace as Worker
    >>> pieces = [("a", 1, 0.0, 2.0), ("b", 1, 1.0, 4.0)]
    >>> sooner_s([Worker(transfers=pieces, marked=[[0.0]])])
    2.0
    """
    seen = [each for each in workers if each.transfers and each.marked]
    if not seen or len(seen) < len(workers):
        return None
    return float(np.mean([_sooner(each) for each in seen]))


def _sooner(worker: WorkerAblation) -> float:
    """Return the mean over steps of one worker."""
    count = len(worker.transfers) / len(worker.marked)
    pieces = sorted((ready, done) for _, _, ready, done in worker.transfers)
    gained, before, after, step = 0.0, float("-inf"), float("-inf"), 0
    for index, (ready, done) in enumerate(pieces):
        if int(index // count) != step:  # pieces of the next step do not wait for those of this one
            gained, step = gained + before - after, int(index // count)
            before = after = float("-inf")
        taken = max(0.0, done - max(ready, before))
        before, after = max(done, before), max(ready, after) + taken / 2
    return (gained + before - after) / len(worker.marked)
