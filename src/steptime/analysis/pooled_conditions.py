"""Flags of numbers over launches that ran under different conditions: versions, schedules, isolation.

A results folder grows over days: a framework is updated, a study is edited, and launches of both kinds are one trial's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from steptime.flags import flag_text
from steptime.statistics.shared_imports import ForkedLaunch


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


class IsolatedLaunch(Protocol):
    """A launch whose record has what kept others out of its sockets."""

    @property
    def isolation(self) -> str | None: ...


class SitedLaunch(Protocol):
    """A launch whose record has the hosts that the run could use."""

    @property
    def site(self) -> Sequence[str] | None: ...


class _WorkerOnHost(Protocol):
    @property
    def host(self) -> str: ...


class HostedLaunch(SitedLaunch, Protocol):
    """A launch of which each worker reports the name of its host."""

    @property
    def workers(self) -> Sequence[_WorkerOnHost]: ...


_LIBRARY = "library "
_OLDER = "not recorded"


def versions_of(launch: AnyLaunch) -> dict[str, str]:
    """Return the versions of the framework, Python, steptime and every library of a launch, by name."""
    found = {"Python": launch.environment.get("python") or _OLDER, "steptime": launch.steptime or _OLDER}
    for worker in launch.workers[:1]:
        found["the framework"] = worker.facts.get("framework_version") or _OLDER
    packages = launch.environment.get("packages", {})
    return found | {f"{_LIBRARY}{name}": version for name, version in packages.items()}


def pooled_versions(launches: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a flag for each of framework, Python, libraries and steptime of which launches had several versions.

    A number over such launches is none of either version. Each flag has every version with its number of launches.

    Args:
        launches: the versions of each, as ``versions_of`` returns them.
    """
    versions: dict[str, list[str]] = {}
    for launch in launches:
        for name, version in launch.items():
            versions.setdefault(name, []).append(version)
    libraries = {name for name in versions if name.startswith(_LIBRARY)}
    found = []
    for name, seen in sorted(versions.items()):
        # A library that some launches lack has another version there.
        every = seen + ["none"] * (len(launches) - len(seen) if name in libraries else 0)
        if len(set(every)) > 1:
            what = f"versions of {name.removeprefix(_LIBRARY)}"
            found.append(flag_text("pooled", what=what, values=_listed(every)))
    return found


def pooled_schedules(launches: Sequence[ScheduledLaunch]) -> list[str]:
    """Return a flag where ``launches`` of one kind had several schedules."""
    schedules = [
        ", ".join(f"{name} {value:g}" for name, value in sorted(launch.schedule.items())) if launch.schedule else _OLDER
        for launch in launches
    ]
    return [flag_text("pooled", what="schedules", values=_listed(schedules))] if len(set(schedules)) > 1 else []


def pooled_isolation(launches: Sequence[IsolatedLaunch]) -> list[str]:
    """Return a flag where the sockets of only some ``launches`` were kept from others, or in different ways."""
    kinds = [launch.isolation or "none" for launch in launches]
    return [flag_text("pooled", what="isolation", values=_listed(kinds))] if len(set(kinds)) > 1 else []


def pooled_imports(launches: Sequence[ForkedLaunch]) -> list[str]:
    """Return a flag where only some ``launches`` were forked from a process that had imported their framework."""
    kinds = ["fresh" if launch.shared_import is None else "forked" for launch in launches]
    return [flag_text("pooled", what="processes", values=_listed(kinds))] if len(set(kinds)) > 1 else []


def pooled_sites(launches: Sequence[SitedLaunch]) -> list[str]:
    """Return a flag where ``launches`` ran on several sites (sets of hosts)."""
    sites = [_OLDER if launch.site is None else ", ".join(launch.site) for launch in launches]
    return [flag_text("several_sites", sites=_listed(sites))] if len(set(sites)) > 1 else []


def pooled_hosts(launches: Sequence[HostedLaunch]) -> list[str]:
    """Return a flag where ``launches`` that name no site ran on several hosts, by the names that hosts give themselves.

    A folder that moved, or records that were copied, hold times of several machines.
    """
    hosts = [
        ", ".join(dict.fromkeys(worker.host for worker in launch.workers))
        for launch in launches
        if launch.site is None and launch.workers
    ]
    return [flag_text("pooled", what="hosts", values=_listed(hosts))] if len(set(hosts)) > 1 else []


def _listed(values: Sequence[str]) -> str:
    counts = sorted(Counter(values).items())
    return "; ".join(f"{value} ({count} {'launch' if count == 1 else 'launches'})" for value, count in counts)
