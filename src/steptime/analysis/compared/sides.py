"""A side of a comparison: what a results folder, or a part of it, measured of each configuration.

The comparison knows sides only. Whatever has launches with their step times can be one: a results folder here, runs of
a user's own script in ``attached_runs``.

Runs of a user's own script as a side of a comparison: each run is a launch.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from shlex import join
from typing import Any

from steptime.analysis.ablation.form import StepBreakdown
from steptime.analysis.flags import counted
from steptime.analysis.pooled_conditions import versions_of
from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import TrialSummary
from steptime.attached.attempts import attempts_of
from steptime.attached.form import GpuUse
from steptime.attached.gpus import gpu_findings, gpu_uses
from steptime.attached.step_parts import KeptSteps, launch_of, longest_training, step_parts
from steptime.attached.step_selection import kept_steps
from steptime.attached.throughput import throughput
from steptime.attached.trainings import trainings_of
from steptime.errors import StoreError, UsageError, choices_message
from steptime.results.attached_files import AttachedHeader
from steptime.results.record_kinds import TIMING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.statistics.launch_times import LaunchTimes, in_turns
from steptime.statistics.shared_imports import one_of_each_import
from steptime.study.study import AXES
from steptime.study.trial import Trial

_NO_IDENTITY = frozenset(("options", "documented_options", "container", "seed"))
"""Fields of a trial by which trials of two sides are not told apart. Options are compared as far as both have them:
another version of a framework may have options that the first did not know."""
_WITH_OPTIONS = {axis.field: axis.options_follow for axis in AXES if axis.options_follow is not None}
"""Where these differ, options do, and the fields that follow from them."""
_OPTION = "options."
_SELF_EVIDENT = tuple(axis.field for axis in AXES if axis.is_name)
"""Keys whose values are names by themselves."""
OF_LAUNCH = {"framework_version": "the framework", "python": "Python", "steptime": "steptime"}
"""What launches of one trial may differ in, if it was continued after an update, by the name in ``versions_of``."""
UNKNOWN_FACT = "unknown"
_HARDWARE = ("id", "cpu", "architecture", "cores", "machine_threads", "quota_cores", "memory_bytes", "gpus")
_SYSTEM = ("kernel", "os", "gpu_driver")
_OWN_VERSION = "steptime"
"""Facts of a machine's fingerprint."""


@dataclass(frozen=True)
class Subject:
    """One configuration as one side measured it."""

    id: str
    """Of the trial, with the part of its launches; unique within its source."""
    identity: Mapping[str, Any]
    """What must agree for two subjects to be compared, by name."""
    options: Mapping[str, Any]
    """What must agree as far as both have it."""
    launches: Sequence[LaunchTimes]
    """Those that ended well; blocks are those of the side's folder."""
    problem: str | None = None
    """Why it cannot be compared; None if it can."""
    breakdown: StepBreakdown | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    """Versions and settings by name, of its last launch."""
    flags: Sequence[str] = ()
    parts_s: Sequence[Mapping[str, float | None]] = ()
    """Of each run of a user's own script, in their order: seconds of each part of its mean step."""

    def value(self, key: str) -> Any:  # noqa: ANN401 - whatever a trial's fields hold
        """Return what the subject has under a key of its identity, or ``options.NAME``; None if it has none."""
        if key.startswith(_OPTION):
            return self.options.get(key.removeprefix(_OPTION))
        return self.identity.get(key)

    def without(self, key: str) -> "Subject":
        """Return the same subject, which ``key`` no longer identifies."""
        left = (key, *_WITH_OPTIONS.get(key, ()))
        options = {name: each for name, each in self.options.items() if f"{_OPTION}{name}" != key}
        options = {} if key in _WITH_OPTIONS else options
        identity = {name: each for name, each in self.identity.items() if name not in left}
        return replace(self, identity=identity, options=options)


@dataclass(frozen=True)
class ComparedSide:
    """Everything that one of two sides measured."""

    name: str
    source: str
    """Of which blocks are: sides of one source are interleaved where they share blocks."""
    subjects: Sequence[Subject]
    company: Sequence[Subject]
    """All that was measured with them, from which is learned how launches spread."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    """Software of the machine: kernel, operating system, driver."""
    started: Sequence[str] = ()
    """When its launches began, UTC in ISO 8601, in order."""
    checked: bool = True
    """Whether what its subjects compute was compared with a reference."""
    by_turns: bool = False
    """Whether its blocks are runs that took turns by the times at which they began, and no randomised blocks."""

    def where(self, key: str, value: str) -> "ComparedSide":
        """Return the subjects whose ``key`` has a value, which no longer distinguishes them.

        Raises UsageError with the keys or the values that there are.
        """
        values = [str(found) for each in self.subjects if (found := each.value(key)) is not None]
        if not values:
            keys = {name for each in self.subjects for name in each.identity}
            options = {f"{_OPTION}{name}" for each in self.subjects for name in each.options}
            raise UsageError(choices_message("key of trials", key, [*keys, *options, *OF_LAUNCH]))
        chosen = [each.without(key) for each in self.subjects if str(each.value(key)) == value]
        if not chosen:
            message = f"{self.source}: {choices_message(key, value, set(values))}"
            raise UsageError(message)
        name = value if key in _SELF_EVIDENT else f"{key}={value}"
        return replace(self, name=name, subjects=chosen)


def side_of(store: Store, name: str, key: str | None = None) -> ComparedSide:
    """Return what a results folder measured; trials that are trained until it is over are left out.

    Args:
        store: the folder.
        name: of the side.
        key: by which the side will be chosen from. Launches of one trial that differ in it are subjects of their own.

    Raises StoreError as the store does.
    """
    summaries = {each.id: each for each in summarise(store).trials}
    subjects: list[Subject] = []
    started: list[str] = []
    for trial in store.trials():
        if trial.training is None:
            launches = list(store.iter_records(TIMING, trial.id))
            started += [each.started_at for each in launches]
            subjects += _subjects(trial, summaries[trial.id], launches, key)
    placed = in_turns({each.id: each.launches for each in subjects})
    subjects = [replace(each, launches=placed[each.id]) for each in subjects]
    hardware, system = facts_of_machine(store)
    settings = store.study_json.get("equivalence") or {}
    return ComparedSide(
        name, str(store.path), subjects, subjects, hardware, system, sorted(started), bool(settings.get("enabled"))
    )


def facts_of_machine(store: Store) -> tuple[dict[str, str], dict[str, str]]:
    """Return what a folder knows of its machine: the hardware, and the software."""
    machine = store.machine() or {}
    hardware, system = ({fact: _said(machine.get(fact)) for fact in facts} for facts in (_HARDWARE, _SYSTEM))
    return hardware, system


def _subjects(trial: Trial, summary: TrialSummary, launches: Sequence[Launch], key: str | None) -> list[Subject]:
    good = [each for each in launches if each.status == "ok"]
    if key not in OF_LAUNCH:
        return [_subject(trial, summary, good)]
    values = dict.fromkeys(versions_of(each)[OF_LAUNCH[key]] for each in good)
    parts = {value: [each for each in good if versions_of(each)[OF_LAUNCH[key]] == value] for value in values}
    return [_subject(trial, summary, own, {key: value}) for value, own in parts.items()]


def _subject(
    trial: Trial, summary: TrialSummary, launches: Sequence[Launch], part: Mapping[str, str] | None = None
) -> Subject:
    """Return a trial, or the part of its launches that have what ``part`` names."""
    found = estimate(launches, trial.strategy) if launches else None
    comparable = summary.status in {"ok", "unranked"} and found is not None
    return Subject(
        id="@".join([trial.id, *(part or {}).values()]),
        identity={**trial.model_dump(mode="json", exclude={"id", *_NO_IDENTITY}), **(part or {})},
        options=dict(trial.options),
        launches=one_of_each_import(found.launches) if found else [],
        problem=None if comparable else summary.reason or "not measured",
        breakdown=None if part else summary.breakdown,
        software=_software(trial, launches[-1]) if launches else {},
        flags=[*summary.flags, *([summary.reason] if summary.status == "unranked" and summary.reason else [])],
    )


def _software(trial: Trial, launch: Launch) -> dict[str, str]:
    variables = launch.environment_variables or {}
    inherited = {name: value for name, value in variables.items() if name not in trial.environment_variables}
    container = " ".join(launch.environment.get("container") or [])
    return {
        **versions_of(launch),
        **{f"variable {name}": value for name, value in inherited.items()},
        **({"container": container} if container else {}),
    }


def _said(value: Any) -> str:  # noqa: ANN401 - any JSON value of a fingerprint
    if isinstance(value, list):
        return ", ".join(str(each["name"]) if isinstance(each, dict) else str(each) for each in value) or "none"
    return UNKNOWN_FACT if value is None else str(value)


_SCRIPT = "own script"
_SAME_AMOUNT = 0.01
"""By which the samples of a step may differ, as by a last batch."""
_SAME_CLOCK = 0.03
"""By which the mean clock of GPUs may."""


def attached_folders(folder: Path) -> list[Path]:
    """Return the results folders of attached runs at or directly below a folder; empty if there is none."""
    places = [folder, *(sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else [])]
    return [each for each in places if Store.exists(each) and Store.open(each).get("attached") is not None]


def attached_sides(
    runs: Sequence[Sequence[Store]], names: Sequence[str], sources: Sequence[str]
) -> tuple[ComparedSide, ComparedSide]:
    """Return the two sides that attached runs make.

    Where both have as many runs and these took turns, a run of each side is a block, in which what drifts hits both
    alike.

    Args:
        runs: of the baseline and of what is compared with it, each taken to be of one script on as many processes.
        names: of both sides.
        sources: the folders that hold them.

    Raises StoreError where no run of a side trained a step.
    """
    first, second = (_runs_of(*each) for each in zip(runs, sources, strict=True))
    one = _side(first, names[0], sources[0])
    known = {each for run in first.trained for each in run.identities}
    own = [run for run in second.trained if known.isdisjoint(run.identities)]
    if not own:
        message = f"{sources[1]}: its runs are those of {sources[0]}, copied; record runs of its own"
        raise StoreError(message)
    left_out = second.copies + len(second.trained) - len(own)
    second = replace(second, trained=own, copies=left_out)
    other = _side(second, names[1], sources[1])
    before, after = first.trained[-1], second.trained[-1]
    unequal = [_unequal_samples(before.steps, after.steps), _unequal_clocks(before.gpus, after.gpus)]
    if marks := [f"{names[1]}: {each}" for each in unequal if each is not None]:
        subjects = [replace(subject, flags=[*subject.flags, *marks]) for subject in other.subjects]
        other = replace(other, subjects=subjects, company=subjects)
    earlier, later = ([run.header for run in each.trained] for each in (first, second))
    if not _were_interleaved(earlier, later):
        return one, other
    one, other = (
        replace(
            side,
            source=" and ".join(sources),
            subjects=[replace(each, id=f"{each.id} of {side.name}")],
            by_turns=True,
        )
        for side in (one, other)
        for each in side.subjects
    )
    company = [*one.subjects, *other.subjects]
    return replace(one, company=company), replace(other, company=company)


def _unequal_samples(one: KeptSteps, other: KeptSteps) -> str | None:
    """Return that steps train on different amounts, so that their times are not those of the same work."""
    before, after = throughput(one).samples, throughput(other).samples
    if not before.per_step or not after.per_step or not before.per_s.value or not after.per_s.value:
        return None
    if abs(after.per_step / before.per_step - 1.0) < _SAME_AMOUNT:
        return None
    return (
        f"a step has {after.per_step:.3g} samples, not {before.per_step:.3g}: "
        f"{after.per_s.value:.3g} samples/s, not {before.per_s.value:.3g}"
    )


def _unequal_clocks(one: Sequence[GpuUse], other: Sequence[GpuUse]) -> str | None:
    """Return that GPUs ran at other clocks, whatever the script did."""
    clocks = [[gpu.clock_hz for gpu in gpus if gpu.clock_hz is not None] for gpus in (one, other)]
    before, after = (sum(each) / len(each) if each else None for each in clocks)
    if before is None or after is None or abs(after / before - 1.0) < _SAME_CLOCK:
        return None
    return f"GPUs ran at {after * 1e-9:.3g} GHz on average, not {before * 1e-9:.3g}"


def _were_interleaved(one: Sequence[AttachedHeader], other: Sequence[AttachedHeader]) -> bool:
    """Whether runs of two scripts make pairs of which each ended before the next began, on one machine."""
    pairs = list(zip(one, other, strict=False))
    order = [run for pair in pairs for run in sorted(pair, key=lambda each: each.begin_ns)]
    apart = all(run.end_ns is not None and run.end_ns <= later.begin_ns for run, later in pairwise(order))
    return len(one) == len(other) > 1 and len({run.boot for run in order}) == 1 and apart


@dataclass(frozen=True)
class _TrainedRun:
    """A run of a user's own script that trained."""

    header: AttachedHeader
    steps: KeptSteps
    trainings: int
    gpus: Sequence[GpuUse]

    @property
    def identities(self) -> tuple[Hashable, Hashable]:
        """What no other run has: when it began on the clock of its boot, and how long its steps took."""
        return (self.header.boot, self.header.begin_ns), self.steps.length_s.tobytes()


@dataclass(frozen=True)
class _TrainedRuns:
    """The runs of a side in the order of their starts, each once."""

    trained: Sequence[_TrainedRun]
    copies: int
    hardware: Mapping[str, str]
    system: Mapping[str, str]


def _runs_of(stores: Sequence[Store], source: str) -> _TrainedRuns:
    read = [found for store in stores if (found := store.attached())]
    known: set[Hashable] = set()
    trained = []
    copies = 0
    for header, files in sorted(read, key=_started):
        kept = [own for attempt in attempts_of(files.processes) if (own := kept_steps(attempt)).numbers]
        if kept:
            longest, trainings = longest_training(kept), trainings_of([own.attempt for own in kept])
            run = _TrainedRun(header, longest, len(trainings), gpu_uses(files.gpus, longest))
            if known.isdisjoint(run.identities):
                trained.append(run)
            else:
                copies += 1
            known.update(run.identities)
    if not trained:
        message = f"{source}: no attached run trained a step that steptime knows"
        raise StoreError(message)
    hardware, system = facts_of_machine(stores[-1])
    own_version = _said((stores[-1].machine() or {}).get(_OWN_VERSION))
    return _TrainedRuns(trained, copies, hardware, {**system, _OWN_VERSION: own_version})


def _side(runs: _TrainedRuns, name: str, source: str) -> ComparedSide:
    latest = runs.trained[-1]
    headers = [run.header for run in runs.trained]
    started = [header.started_at for header in headers]
    reduced = [launch_of(run.steps, number) for number, run in enumerate(runs.trained)]
    launches = [replace(each, started_at=moment) for each, moment in zip(reduced, started, strict=True)]
    noise = [header.noise for header in headers]
    flags = [f"{name}: {each}" for each in counted([header.flags for header in headers], noise)]
    flags += [f"{name}: {each.sentence}" for run in runs.trained for each in gpu_findings(run.gpus)]
    if runs.copies:
        flags.append(f"{runs.copies} of {runs.copies + len(headers)} runs left out: copies of others")
    several = [run.trainings for run in runs.trained if run.trainings > 1]
    if several:
        which = "" if len(several) == len(headers) else f"{len(several)} of {len(headers)} runs: "
        times = str(several[0]) if len(set(several)) == 1 else f"{min(several)} to {max(several)}"
        flags.append(f"{name}: {which}the command trained {times} times; the longest training is compared")
    subject = Subject(
        id=_SCRIPT,
        identity={"workload": _SCRIPT, "processes": latest.steps.attempt.world},
        options={},
        launches=launches,
        software={"command": join(latest.header.command)},
        flags=list(dict.fromkeys(flags)),
        parts_s=[{part.name: part.time_s.value for part in step_parts(run.steps)} for run in runs.trained],
    )
    return ComparedSide(
        name, source, [subject], [subject], runs.hardware, runs.system, list(filter(None, started)), checked=False
    )


def _started(found: tuple[AttachedHeader, Any]) -> str:
    return found[0].started_at
