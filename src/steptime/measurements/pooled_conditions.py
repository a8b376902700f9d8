"""Flags of numbers over launches that ran under different conditions: other versions, other schedules.

A results folder grows over days: a framework is updated, a study is edited, and launches of both kinds are one trial's.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol


class _Worker(Protocol):
    @property
    def facts(self) -> Mapping[str, Any]: ...


class AnyLaunch(Protocol):
    """What the records of timed, ablation and message launches share."""

    @property
    def workers(self) -> Sequence[_Worker]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def steptime(self) -> str | None: ...


class ScheduledLaunch(AnyLaunch, Protocol):
    """A launch of a trial."""

    @property
    def status(self) -> str: ...
    @property
    def schedule(self) -> Mapping[str, float] | None: ...


POOLED = "pooled over different"
_LIBRARY = "library "
_OLDER = "not recorded"


def pooled_versions(launches: Sequence[AnyLaunch]) -> list[str]:
    """Return a flag for each of framework, Python, libraries and steptime of which ``launches`` had several versions.

    A number over such launches is none of either version. Each flag has every version with its number of launches.
    """
    versions: dict[str, list[str]] = {}
    for launch in launches:
        for name, version in _versions(launch):
            versions.setdefault(name, []).append(version)
    libraries = {name for name in versions if name.startswith(_LIBRARY)}
    found = []
    for name, seen in sorted(versions.items()):
        # A library that some launches lack has another version there.
        every = seen + ["none"] * (len(launches) - len(seen) if name in libraries else 0)
        if len(set(every)) > 1:
            found.append(f"{POOLED} versions of {name.removeprefix(_LIBRARY)}: {_listed(every)}")
    return found


def pooled_schedules(launches: Sequence[ScheduledLaunch]) -> list[str]:
    """Return a flag where ``launches`` of one kind had several schedules."""
    schedules = [
        ", ".join(f"{name} {value:g}" for name, value in sorted(launch.schedule.items())) if launch.schedule else _OLDER
        for launch in launches
    ]
    return [f"{POOLED} schedules: {_listed(schedules)}"] if len(set(schedules)) > 1 else []


def _versions(launch: AnyLaunch) -> Iterator[tuple[str, str]]:
    """Yield names and versions; those of libraries are below the framework and named after it."""
    for worker in launch.workers[:1]:
        yield "the framework", worker.facts.get("framework_version") or _OLDER
    yield "Python", launch.environment.get("python") or _OLDER
    yield "steptime", launch.steptime or _OLDER
    for name, version in launch.environment.get("packages", {}).items():
        yield f"{_LIBRARY}{name}", version


def _listed(values: Sequence[str]) -> str:
    counts = sorted(Counter(values).items())
    return "; ".join(f"{value} ({count} {'launch' if count == 1 else 'launches'})" for value, count in counts)
