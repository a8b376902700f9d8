"""Whether a record fits the trial, or the setting of messages, that it stands for: the same tests for every kind.

A record that does not fit is set aside: no number rests on it, it stays in its file, and the launch counts as not
there. What a record does not say is not tested, so that older records read as before. docs/security.md has the table
of what is tested.

Lines of a results folder that no number rests on: each stays in its file, and is named with the reason.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Generic, Literal, Protocol, TypeVar

from steptime.catalog.cluster import Cluster
from steptime.results.json_form import JsonForm
from steptime.results.stored_record import LaunchRecord, WorkerEvidence
from steptime.units import format_seconds

Reason = Literal[
    "damaged", "other_trial", "repeated", "workers", "host", "facts", "steps", "clock", "duration", "unfilled", "kernel"
]
REASONS: dict[Reason, str] = {
    "damaged": "damaged",
    "other_trial": "of another trial",
    "repeated": "the same launch again",
    "workers": "with workers missing or doubled",
    "host": "on other hosts",
    "facts": "with facts that contradict the trial",
    "steps": "with different numbers of steps",
    "clock": "with a clock that goes back",
    "duration": "longer than their launch",
    "unfilled": "with steps much shorter than the time that they took",
    "kernel": "with a clock that the kernel's contradicts",
}
"""Why a line is not used, in the order in which it is examined."""


class SetAside(JsonForm):
    """A line of records that no number rests on."""

    file: str
    line: int
    """From 1."""
    reason: Reason
    """``damaged``, ``other_trial``, ``repeated``, ``workers``, ``host``, ``facts``, ``steps``, ``clock``,
    ``duration``, ``unfilled`` or ``kernel``."""
    message: str


def counted(found: Iterable[SetAside]) -> str:
    """Return how many lines were set aside for which reason: ``2 the same launch again, 1 damaged``."""
    counts = Counter(each.reason for each in found)
    return ", ".join(f"{counts[reason]} {words}" for reason, words in REASONS.items() if counts[reason])


def sentences(found: Iterable[SetAside]) -> list[str]:
    """Return a sentence for all lines of a file with which the same is wrong."""
    groups: dict[tuple[str, Reason, str], list[int]] = {}
    for each in found:
        groups.setdefault((each.file, each.reason, each.message), []).append(each.line)
    return [_sentence(file, reason, message, lines) for (file, reason, message), lines in groups.items()]


def _sentence(file: str, reason: Reason, message: str, lines: Sequence[int]) -> str:
    several = len(lines) > 1
    place = f"{file}, line{'s' if several else ''} {_ranges(lines)}"
    if reason == "damaged":
        return f"{place} {'are' if several else 'is'} damaged and {'were' if several else 'was'} skipped ({message})"
    return f"{place} {'were' if several else 'was'} set aside: {message}"


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ``3 to 6, 9``."""
    starts = [numbers[0], *(later for earlier, later in pairwise(numbers) if later != earlier + 1)]
    ends = [*(earlier for earlier, later in pairwise(numbers) if later != earlier + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)
    )


class Configuration(Protocol):
    """What records are compared with: a trial, or a setting of the network benchmark."""

    @property
    def workers(self) -> int: ...
    @property
    def hosts(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def launcher(self) -> str: ...
    @property
    def cluster(self) -> Cluster | None: ...
    @property
    def environment_variables(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Misfit:
    """Why a record does not fit."""

    reason: Reason
    message: str


AnyRecord = TypeVar("AnyRecord", bound=LaunchRecord)


KnownLaunches = dict[Hashable, tuple[str | None, str, int]]
"""By what no other launch has, the trial, the kind of record and the line that had it first."""


class FileCheck(Generic[AnyRecord]):
    """The test of all records of one file, one after the other."""

    def __init__(
        self,
        configuration: Callable[[AnyRecord], Configuration],
        only: str | None = None,
        machine: str | None = None,
        known: KnownLaunches | None = None,
    ) -> None:
        """Take what the records are to fit.

        Args:
            configuration: returns that of a record.
            only: the id of the one trial whose launches the file has; None if each record has its own setting.
            machine: that the results folder belongs to; if unknown, that of the first launch counts.
            known: the launches of this file and of others of the folder, where they were read before.
        """
        self._configuration = configuration
        self._only = only
        self._machine = machine
        self._known: KnownLaunches = {} if known is None else known

    def misfit(self, record: AnyRecord, line: int) -> Misfit | None:
        """Return why the record of a line is not to be used, or None."""
        if self._only not in (None, record.configuration_id):
            return Misfit("other_trial", f"it is a launch of {record.configuration_id}")
        evidence = record.evidence()
        found = self._other_machine(record) or misfit(record, self._configuration(record), evidence)
        if found is not None:
            return found
        here = (self._only, record.kind, line)
        for identity in record.identities(evidence):
            first = self._known.setdefault(identity, here)
            if first != here:
                of_other = "" if first[:2] == here[:2] else f" of {first[0]}"
                return Misfit("repeated", f"it is the launch of line {first[2]}{of_other} again")
        return None

    def _other_machine(self, record: AnyRecord) -> Misfit | None:
        """Return the misfit of a launch of another machine; on the hosts of a site, any of them may have started it."""
        if record.site is not None or record.machine is None:
            return None
        self._machine = self._machine or record.machine
        if record.machine == self._machine:
            return None
        return Misfit("host", f"it ran on the machine {record.machine}, and this folder is of {self._machine}")


def misfit(
    record: LaunchRecord, configuration: Configuration, evidence: Sequence[WorkerEvidence] | None = None
) -> Misfit | None:
    """Return why the record of a launch of ``configuration`` does not fit it, or None; a failed one is not tested.

    Args:
        record: of the launch.
        configuration: that it is to fit.
        evidence: the record's own, where it is known.
    """
    if record.status == "failed":
        return None
    workers = sorted(record.evidence() if evidence is None else evidence, key=lambda each: each.rank)
    for reason, mistake in _TESTS:  # each takes for granted what those before it have shown
        message = mistake(workers, record, configuration)
        if message:
            return Misfit(reason, message)
    return None


def _ranks_mistake(workers: Sequence[WorkerEvidence], _: LaunchRecord, configuration: Configuration) -> str | None:
    expected = configuration.workers
    ranks = [worker.rank for worker in workers]
    if ranks == list(range(expected)):
        return None
    listed = f"records of the ranks {', '.join(map(str, ranks))}" if ranks else "no record of a worker"
    wanted = "rank 0 alone" if expected == 1 else f"one of each rank from 0 to {expected - 1}"
    return f"it has {listed}, and needs {wanted}"


def _hosts_mistake(workers: Sequence[WorkerEvidence], record: LaunchRecord, configuration: Configuration) -> str | None:
    cluster, found = configuration.cluster, record.cluster
    if cluster is None and configuration.hosts > 1:
        return None  # which worker runs on which host is the launcher's choice
    first: dict[int, WorkerEvidence] = {}
    for worker in workers:
        if worker.host is not None:
            other = first.setdefault(cluster.host_of("worker", worker.rank) if cluster else 0, worker)
            if worker.host != other.host:
                return f"worker {worker.rank} ran on {worker.host}, not on {other.host} as worker {other.rank}"
    if cluster is None or found is None:
        return None
    kind, count = found["kind"], len(found["hosts"])
    if (kind, count) != (cluster.kind, len(cluster.hosts)):
        return f"it ran on {count} hosts ({kind}), not on {len(cluster.hosts)} ({cluster.kind})"
    if cluster.kind == "emulated":  # hosts that are found call themselves as they like
        places = {role: host["name"] for host in found["hosts"] for role in host["roles"]}
        for worker in workers:
            place = places.get(f"worker-{worker.rank}", worker.host)
            if worker.host not in (None, place):
                return f"worker {worker.rank} ran on {worker.host}, not on {place}"
    return None


_TYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""Precisions by the type that torch's autocast names."""
_PROCESSORS = ("cpu", "@numpy", "avx", "no avx", "default")
"""Beginnings of what frameworks call a processor."""
_ACCELERATORS = ("gpu", "cuda", "cupy", "nvidia")
"""Parts of what they call a CUDA device; another name is ignored."""


def _facts_mistake(workers: Sequence[WorkerEvidence], record: LaunchRecord, configuration: Configuration) -> str | None:
    for name, value in record.settings().items():
        if value != getattr(configuration, name):
            return f"{name}: {value}, not {getattr(configuration, name)}"
    passed = record.environment_variables
    for name, value in configuration.environment_variables.items():
        if passed is not None and passed.get(name) != value:
            return f"{name} was {passed.get(name)!r} in its environment, not {value!r}"
    for worker in workers:
        threads = worker.facts.get("threads")
        # They are fewer where there are no more cores, and in steptime's own process they are what they were.
        many = isinstance(threads, int) and threads > configuration.threads
        if many and configuration.launcher != "inline":
            return f"worker {worker.rank} computed with {threads} threads, not {configuration.threads}"
        for name, value in _reported_settings(worker.facts):
            if value != getattr(configuration, name):
                return f"worker {worker.rank} computed with {name} {value}, not {getattr(configuration, name)}"
    return None


def _reported_settings(facts: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the device and the precision that a worker's facts name, as far as they do."""
    precision = facts.get("precision") or _TYPES.get(str(facts.get("autocast")))
    return _settings(str(facts.get("device", "")), str(precision) if precision else None)


@lru_cache
def _settings(device: str, precision: str | None) -> Sequence[tuple[str, str]]:
    found = []
    device = device.lower()
    if device.startswith(_PROCESSORS):
        found.append(("device", "cpu"))
    elif any(sign in device for sign in _ACCELERATORS):
        found.append(("device", "cuda"))
    if precision:
        found.append(("precision", precision))
    return tuple(found)


def _steps_mistake(workers: Sequence[WorkerEvidence], *_: object) -> str | None:
    first = workers[0]
    for worker in workers:
        if list(worker.steps) != list(first.steps):
            numbers = [", ".join(map(str, each.steps)) for each in (worker, first)]
            return f"the numbers of steps of worker {worker.rank} are {numbers[0]}, and of worker 0 {numbers[1]}"
    return None


_BETWEEN_READINGS_S = 0.01
"""Moments of a device are placed on the host's clock, anew after each wait for the device."""


def _clock_mistake(workers: Sequence[WorkerEvidence], *_: object) -> str | None:
    for worker in workers:
        last = None
        for moments in (reading.moments for reading in worker.readings if reading.moments):
            back = last - moments[0] if last is not None and last - moments[0] > _BETWEEN_READINGS_S else 0.0
            if not _is_ascending(moments):
                back = max(back, *(earlier - later for earlier, later in pairwise(moments)))
            if back > 0.0:
                return f"the clock of worker {worker.rank} went back by {format_seconds(back)}"
            last = moments[-1]
    return None


def _is_ascending(moments: Sequence[float]) -> bool:
    """Say whether no moment lies before the one in front of it: sorting what is sorted is one quick look."""
    return list(moments) == sorted(moments)


_SHARE, _LEAST_S = 0.01, 0.05
"""By how much two measurements of a duration may differ."""


def _too_long(seconds: float, limit_s: float) -> bool:
    return seconds > limit_s * (1.0 + _SHARE) + _LEAST_S


def _duration_mistake(workers: Sequence[WorkerEvidence], record: LaunchRecord, _: object) -> str | None:
    wall_s = record.wall_s
    for worker in workers:
        begin, end = _ends(worker)
        longest = max(end - begin, worker.lasted_s)
        if _too_long(longest, wall_s):
            return f"worker {worker.rank} measured {format_seconds(longest)} in a launch of {format_seconds(wall_s)}"
    for parts in zip(*(worker.readings for worker in workers), strict=True):
        # A process that computes for several workers counts the seconds for all of them.
        limit = max((part.within_s for part in parts if part.within_s is not None), default=None)
        for worker, part in zip(workers, parts, strict=True):
            seconds = part.moments[-1] - part.moments[0] if part.moments else 0.0
            if limit is not None and _too_long(seconds, limit):
                times = f"{format_seconds(seconds)} where it counted {format_seconds(limit)}"
                return f"worker {worker.rank} measured {times}"
    return None


_STEPS_AHEAD = 2.0
"""Steps that may be under way when a process begins to count: a device's clock starts when they are over."""
_OVERHEAD = 0.1
"""Of the counted seconds, that may lie around the steps."""
_PAUSE_S = 0.25
"""Likewise, also of a short launch: a busy machine may hold a process up once, outside of all steps."""


def _unfilled_mistake(workers: Sequence[WorkerEvidence], *_: object) -> str | None:
    """A clock that notes when a step was asked for, and not when it was over, leaves most of the seconds out.

    The longest of the workers is looked at: a process that computes for several counts the seconds for all of them.
    """
    for parts in zip(*(worker.readings for worker in workers), strict=True):
        counted = min((part.within_s for part in parts if part.within_s is not None), default=None)
        seconds, steps = max(
            ((part.moments[-1] - part.moments[0], len(part.moments) - 1) for part in parts if part.moments),
            default=(0.0, 0),
        )
        if counted is None or not steps:
            continue
        if counted - seconds > _STEPS_AHEAD * seconds / steps + _OVERHEAD * counted + _PAUSE_S:
            times = (
                f"{format_seconds(seconds)} by their clock, and a process counted {format_seconds(counted)} for them"
            )
            return f"its steps took {times}"
    return None


def _kernel_mistake(workers: Sequence[WorkerEvidence], *_: object) -> str | None:
    wrong = next((worker for worker in workers if worker.contradicted), None)
    return f"the clock of worker {wrong.rank} {wrong.contradicted}" if wrong else None


def _shared_clock_mistake(workers: Sequence[WorkerEvidence], record: LaunchRecord, _: object) -> str | None:
    """All workers of a host read one clock: their moments lie within the launch, or two machines have one name."""
    wall_s = record.wall_s
    if len(workers) == 1:
        return None  # whose own moments lie within the launch, as its duration does
    hosts: dict[str, tuple[float, float]] = {}
    for worker in workers:
        begin, end = _ends(worker)
        if worker.host is None or begin == end:
            continue
        first, last = hosts.get(worker.host, (begin, end))
        first, last = hosts[worker.host] = min(first, begin), max(last, end)
        if _too_long(last - first, wall_s):
            apart = f"{format_seconds(last - first)} apart in a launch of {format_seconds(wall_s)}"
            return f"workers on {worker.host} read clocks {apart}: two machines have this name"
    return None


_Test = Callable[[Sequence[WorkerEvidence], LaunchRecord, Configuration], str | None]
_TESTS: Sequence[tuple[Reason, _Test]] = (
    ("workers", _ranks_mistake),
    ("host", _hosts_mistake),
    ("facts", _facts_mistake),
    ("steps", _steps_mistake),
    ("clock", _clock_mistake),
    ("duration", _duration_mistake),
    ("unfilled", _unfilled_mistake),
    ("kernel", _kernel_mistake),
    ("host", _shared_clock_mistake),
)


def _ends(worker: WorkerEvidence) -> tuple[float, float]:
    """Return the first and the last moment of a worker whose readings ascend; both are 0 where it has none."""
    read = []
    for reading in worker.readings:
        if reading.moments:
            read += [reading.moments[0], reading.moments[-1]]
    read += [min(worker.also_read), max(worker.also_read)] if worker.also_read else []
    return (min(read), max(read)) if read else (0.0, 0.0)
