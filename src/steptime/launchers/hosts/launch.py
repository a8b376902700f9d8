"""One launch on the hosts of a site: started over lines, watched to its end, and none of its processes left behind."""

import contextlib
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from steptime.catalog.cluster_findings import ClusterFindings, HostFindings
from steptime.catalog.found_site import FoundHost, Site
from steptime.errors import LaunchError
from steptime.interruption import shielded
from steptime.launchers.hang import cause_of_hang, last_words
from steptime.launchers.hosts.commands import (
    address_of,
    cluster_of,
    cores_on,
    plan_message,
    ports_needed,
    processes,
    reach_commands,
    roles_on,
    starts,
    variables_on,
    with_transports,
)
from steptime.launchers.hosts.connections import SILENCE_S, Lines
from steptime.launchers.hosts.probe import answering
from steptime.launchers.processes import how_it_ended, how_it_was_stopped
from steptime.launchers.request import LATE, HostLoad, LaunchOutcome, Process, Request

_READY_S = 90.0
"""How long ssh or Slurm may take to start the host agents."""
_COPIED_S = 1800.0
"""How long a copy of an environment to a host's own disk may take; the host sends heartbeats meanwhile."""
_LAST_WORD_S = 6.0
_SERVER_GRACE_S = 5.0


def site_of(request: Request, launcher: str) -> tuple[Site, Sequence[FoundHost]]:
    """Return the site of a request and those of its hosts that the launch uses.

    Raises LaunchError where there is no site, or too few hosts.
    """
    if request.site is None:
        message = (
            f"the launcher {launcher!r} needs hosts: name them in the study (hosts: [n0, n1]), or use an allocation"
        )
        raise LaunchError(message)
    needed = len(cluster_of(request).hosts)
    if needed > len(request.site.hosts):
        message = f"the launch needs {needed} hosts, and there are {len(request.site.hosts)}"
        raise LaunchError(message)
    return request.site, request.site.first(needed)


def planned_on_hosts(request: Request, launcher: str, marker: str, ports: Sequence[int]) -> list[Process]:
    """Return the ssh or srun processes of a launch."""
    site, hosts = site_of(request, launcher)
    return processes(request, hosts, site.reach, marker, ports)


def run_on_hosts(request: Request, launcher: str) -> LaunchOutcome:
    """Run a launch on the hosts of its site; raises LaunchError where it cannot be started at all."""
    site, hosts = site_of(request, launcher)
    started = time.monotonic()
    commands = reach_commands(hosts, site.reach)
    launch = _LaunchOnHosts(request, site, hosts)
    with Lines(commands, [host.name for host in hosts], request.folder) as lines:
        reason: str | None = "the launch was not finished"
        lost: list[str] = []
        try:
            reason = launch.run(lines, started + request.time_limit_s)
            lost = lines.lost() if reason else []
        finally:
            with shielded():
                launch.end(lines)
    if reason:
        launch.cancel_step()
        lost = sorted({*lost, *launch.silent_dead()})
    return LaunchOutcome(
        reason is None,
        reason,
        time.monotonic() - started - launch.copy_s,
        [*commands.values(), *launch.mpiexec],
        cluster=launch.findings(),
        host_loads=launch.loads(),
        passed=variables_in_words([host.name for host in hosts][: len(launch.passed)], launch.passed),
        lost_hosts=lost,
    )


def variables_in_words(hosts: Sequence[str], variables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of several hosts: values that all have, and who has which where they differ."""
    found = {}
    for name in sorted({name for each in variables for name in each}):
        values = [each.get(name) for each in variables]
        same = values[0] if len(set(values)) == 1 else None
        said = [f"{host}: {'not set' if value is None else value}" for host, value in zip(hosts, values, strict=True)]
        found[name] = "; ".join(said) if same is None else same
    return found


class _LaunchOnHosts:
    """What is known of a launch on hosts while it runs."""

    def __init__(self, request: Request, site: Site, hosts: Sequence[FoundHost]) -> None:
        self._request = request
        self._site = site
        self._hosts = hosts
        self._cluster = cluster_of(request)
        self._marker = uuid.uuid4().hex
        self._running: dict[str, int] = {}
        self._proxies: dict[str, tuple[int, str]] = {}
        """Of processes that an mpiexec asked for: who asked, and under which name."""
        self._before: dict[int, dict[str, Any]] = {}
        self._after: dict[int, dict[str, Any]] = {}
        self._step: str | None = None
        self.passed: list[dict[str, str]] = []
        """By host, the variables that change speed and that processes inherit."""
        self.copy_s = 0.0
        """What it took to have the environment on the hosts' own disks."""
        self.mpiexec: list[list[str]] = []
        """The command of the mpiexec of the launch, with the variables that tell it which network to use."""
        self._of_mpi: dict[str, str] = {}
        """The environment of the mpiexec, which its processes on other hosts have too."""

    def run(self, lines: Lines, deadline: float) -> str | None:
        """Start the processes and wait; return why the launch failed, None when all workers reached their end."""
        everywhere = range(len(self._hosts))
        try:
            lines.send(plan=plan_message(self._request, self._hosts, SILENCE_S))
            ready = lines.gather("ready", min(_READY_S, self._request.time_limit_s))
            self._step = ready[0]["ready"]["step"]
            self.passed = [ready[host]["ready"]["passed"] for host in everywhere]
            self._copy_environment(lines)
            deadline += self.copy_s
            for host in everywhere:
                count = ports_needed(self._request, self._cluster, host)
                lines.send(**{"for": host, "ports": [address_of(self._hosts, host)[1], count]})
            found = lines.gather("ports", _READY_S)
        except LaunchError as error:
            return str(error)
        self._before = {host: found[host]["before"] for host in everywhere}
        ports = [found[host]["ports"] for host in everywhere]
        for host in everywhere:
            if len(ports[host]) < ports_needed(self._request, self._cluster, host):
                return f"too few ports are free at {self._hosts[host].address} on {self._hosts[host].name}"
        for host, planned in enumerate(starts(self._request, self._hosts, self._marker, ports)):
            if planned:
                lines.send(**{"for": host, "start": planned})
            self._running.update({process["name"]: host for process in planned})
            if planned and self._request.mpi:
                self._of_mpi = {**self._of_mpi, **planned[0]["environment"]}
                self.mpiexec = [with_transports(planned[0])]
        return self._wait(lines, deadline)

    def _copy_environment(self, lines: Lines) -> None:
        """Have the framework's environment on the hosts' own disks, where the study wants that.

        Raises LaunchError that names the first host where that failed.
        """
        place, environment = self._site.local_folder, self._request.environment
        if place is None or environment is None:
            return
        started = time.monotonic()
        lines.send(copy={"environment": str(environment), "place": place})
        answers = lines.gather("copied", _COPIED_S, silence_s=SILENCE_S)
        for host in range(len(self._hosts)):
            if answers[host]["copied"] is None:
                message = f"{self._hosts[host].name}: hosts.local_folder: {answers[host]['error']}"
                raise LaunchError(message)
        places = {answer["copied"] for answer in answers.values()}
        if self._request.mpi and len(places) > 1:
            message = (
                f"an mpiexec needs the same folder on all hosts, and hosts.local_folder {place} is "
                f"{' and '.join(sorted(places))}"
            )
            raise LaunchError(message)
        self.copy_s = time.monotonic() - started

    def _wait(self, lines: Lines, deadline: float) -> str | None:
        late_servers = None
        while True:
            message = lines.receive()
            if message:
                reason = self._take(lines, message)
                if reason:
                    return reason
                continue
            if not any(not name.startswith(("server", "scheduler")) for name in self._running):
                late_servers = late_servers or time.monotonic() + _SERVER_GRACE_S
                if not self._running or time.monotonic() > late_servers:
                    return None
            if reason := lines.failure():
                return reason
            if time.monotonic() > deadline:
                late = f"{LATE} of {self._request.time_limit_s:g} s: "
                late += f"{', '.join(self._running)} still running"
                folder = self._request.folder
                cause = cause_of_hang(self._running, folder, here=False)
                return "; ".join(filter(None, [late, last_words(folder), cause]))
            if self._request.cancelled.is_set():
                return "cancelled"

    def _take(self, lines: Lines, message: dict[str, Any]) -> str | None:
        """Note a message of a host agent; return why the launch has failed by that, if it has."""
        host = message["host"]
        if "agent" in message:
            self._start_proxy(lines, message)
        if "stopped" in message:
            return how_it_was_stopped(f"{message['stopped']} on {self._hosts[host].name}")
        if "link_down" in message:
            return f"the link of {self._hosts[host].name} ({message['link_down']}) went down during the launch"
        if "ended" not in message:
            return None
        name, code = message["ended"], message["code"]
        if name in self._proxies:
            asker, asked_as = self._proxies.pop(name)
            lines.send(**{"for": asker, "answer": asked_as, "code": code if code and code > 0 else int(bool(code))})
            return None
        self._running.pop(name, None)
        if code:
            return f"{name} on {self._hosts[host].name} {how_it_ended(code)}"
        return f"{name} on {self._hosts[host].name}: {message['error']}" if code is None else None

    def _start_proxy(self, lines: Lines, message: dict[str, Any]) -> None:
        """Have the host that an mpiexec names run the mpiexec's command."""
        known = {name: index for index, host in enumerate(self._hosts) for name in (host.name, host.address)}
        target = known.get(message["on"].rpartition("@")[2], message["host"])
        name = f"{message['agent']}-{target}"
        self._proxies[name] = (message["host"], message["agent"])
        environment = {**self._of_mpi, **variables_on(self._request, self._hosts, self._cluster, target)}
        lines.send(**{"for": target, "name": name, "command": message["command"], "environment": environment})

    def end(self, lines: Lines) -> None:
        """Have every host agent end what is left, and hear its last word."""
        lines.send(end=True)
        deadline = time.monotonic() + _LAST_WORD_S
        while len(self._after) < len(self._hosts) and time.monotonic() < deadline:
            message = lines.receive()
            if message and "left" in message:
                self._after[message["host"]] = {**message["left"], "own_cpu_s": message["own_cpu_s"]}
                lines.has_left(message["host"])
            elif message is None and lines.failure():
                return

    def silent_dead(self) -> list[str]:
        """Return the hosts that said no last word and start no program now.

        A worker that loses its peer fails at once, so that the launch has failed before the peer's host was silent for
        long enough to be taken for dead. Nobody waits for that who wants the launch to end.
        """
        unheard = [each for index, each in enumerate(self._hosts) if index not in self._after]
        if not unheard or self._request.cancelled.is_set():
            return []
        alive = answering(replace(self._site, hosts=tuple(unheard)))
        return [host.name for host in unheard if host.name not in alive]

    def cancel_step(self) -> None:
        """Have Slurm end what a failed launch may have left on a node that its srun does not reach any more."""
        if self._site.reach == "slurm" and self._step is not None and len(self._after) < len(self._hosts):
            job = self._site.source.rpartition(" ")[2]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                command = ["scancel", "--quiet", "--signal=KILL", f"{job}.{self._step}"]
                subprocess.run(command, check=False, capture_output=True, timeout=20.0)

    def loads(self) -> list[HostLoad]:
        """Return the counters of each host around the launch."""
        both = [host for host in range(len(self._hosts)) if host in self._before and host in self._after]
        return [HostLoad(self._hosts[host].name, self._before[host], self._after[host]) for host in both]

    def findings(self) -> ClusterFindings:
        """What is to be kept of the hosts."""
        known = {host: self._bytes(host) for host in range(len(self._hosts))}
        used = len(self._hosts)
        return ClusterFindings(
            kind="found",
            delay_s=0.0,
            delay_by=None,
            cpu_groups=None,
            users=False,
            congestion_control="the system's",
            hosts=[
                HostFindings(
                    name=host.name,
                    address=host.address,
                    roles=[f"{role}-{rank}" for role, rank, _ in roles_on(self._request, self._cluster, index)],
                    cores=sorted(
                        {c for own in cores_on(self._request, self._hosts, self._cluster, index)[0] for c in own}
                    ),
                    bandwidth_bits_per_s=None,
                    burst_bytes=None,
                    cpu_quota_cores=None,
                    received_bytes=known[index][0],
                    sent_bytes=known[index][1],
                )
                for index, host in enumerate(self._hosts)
            ],
            paths=[path for path in self._site.paths if path.target < used],
        )

    def _bytes(self, host: int) -> tuple[int, int]:
        name = address_of(self._hosts, host)[0]
        before, after = (
            side.get(host, {}).get("network", {}).get(name, [0, 0]) for side in (self._before, self._after)
        )
        return max(0, after[0] - before[0]), max(0, after[1] - before[1])
