"""The launchers by name: steptime's own, and those of plug-ins.

The launcher ``emulated``: several hosts made of this machine, with links of a given speed between them.
"""

import os
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.plugins import Registry
from steptime.errors import LaunchError, UsageError, choices_message
from steptime.extras import why_absent
from steptime.launchers.base import LOCALHOST, AbstractLauncher, free_ports
from steptime.launchers.emulation.commands import processes
from steptime.launchers.emulation.hosts import made_hosts
from steptime.launchers.emulation.rootless import run_below
from steptime.launchers.emulation.verification import is_privileged, missing_program, missing_requirement
from steptime.launchers.hosts.launch import planned_on_hosts, run_on_hosts
from steptime.launchers.mpiexec import find_mpiexec, is_open_mpi, missing_mpiexec, open_mpi_flags
from steptime.launchers.namespaces import entry_of, isolation_on_this_host
from steptime.launchers.process_env import shared_variables
from steptime.launchers.processes import watch
from steptime.launchers.request import Isolation, LaunchOutcome, Process, Request
from steptime.worker.main import run_process


class EmulatedLauncher(AbstractLauncher):
    """Makes a host of a network namespace, a host name and a control group for each of the request's hosts.

    Without a cluster in the request, every worker has a host and every server of its own another, and nothing
    limits the links.
    """

    name = "emulated"
    summary = "hosts made of this machine, with a name, a link and a share of the processor each"

    def isolation(self, wanted: Isolation) -> str | None:
        del wanted
        return "network namespaces of emulated hosts"

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return processes(request, _cluster(request), marker, ports)

    def missing_requirement(self, request: Request) -> str | None:
        return missing_program() or (missing_mpiexec(request) if request.mpi else None)

    def run(self, request: Request) -> LaunchOutcome:
        reason = missing_requirement()
        if reason:
            raise LaunchError(reason)
        program = request.command[0]
        if not os.access(program, os.X_OK) and shutil.which(program) is None:
            message = f"could not start {program}: it is not a program"
            raise LaunchError(message)
        if not is_privileged():
            return run_below(request)
        marker = uuid.uuid4().hex
        ports = free_ports(1 + request.workers + request.servers, LOCALHOST)
        planned = self.plan(request, marker, ports)
        with made_hosts(_cluster(request), request) as hosts:
            outcome = watch(planned, request, marker, hosts.broken)
            if broken := hosts.broken():
                return replace(outcome, ok=False, reason=broken)
            return replace(outcome, cluster=hosts.findings(), isolation=self.isolation(request.isolation))


def _cluster(request: Request) -> Cluster:
    own_servers = 0 if request.colocated_servers else request.servers
    return request.cluster or cluster_for(workers=request.workers, own_servers=own_servers)


class InlineLauncher(AbstractLauncher):
    """Runs a single worker of the ``reference`` framework without starting anything: a debugger can step into it."""

    name = "inline"
    summary = "one worker inside steptime's own process; the reference framework only, for debugging"

    def isolation(self, wanted: Isolation) -> str | None:
        del wanted
        return "no sockets"

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        del marker, ports
        if request.workers != 1 or request.servers or request.scheduler:
            message = (
                f"the launcher 'inline' runs one worker and no servers, not {request.workers} workers "
                f"and {request.servers} servers; use the launcher 'local'"
            )
            raise LaunchError(message)
        if request.container:
            message = (
                f"the launcher 'inline' runs in steptime's own process, not in {shlex.join(request.container)}; use "
                "the launcher 'local'"
            )
            raise LaunchError(message)
        if request.interpreter.resolve() != Path(sys.executable).resolve():
            message = (
                f"the launcher 'inline' runs in steptime's own interpreter, not in {request.interpreter}; "
                "use it with the framework 'reference', or use the launcher 'local'"
            )
            raise LaunchError(message)
        return [Process("worker-0", (sys.executable, "start.py", "job.json"), {"STEPTIME_OUTPUT": "inherit"})]

    def run(self, request: Request) -> LaunchOutcome:
        (process,) = self.plan(request, "", ())
        started = time.monotonic()
        code = run_process(
            str(request.folder / "job.json"), {**process.environment, "STEPTIME_PARENT": str(os.getpid())}
        )
        reason = None if code == 0 else f"worker-0 ended with exit code {code}"
        return LaunchOutcome(
            reason is None,
            reason,
            time.monotonic() - started,
            [list(process.argv)],
            isolation=self.isolation(request.isolation),
        )


class LocalLauncher(AbstractLauncher):
    """Starts scheduler, servers and workers as children; workers are pinned, servers where that is possible."""

    name = "local"
    summary = "workers, servers and schedulers as processes of this host, workers pinned to cores"

    def isolation(self, wanted: Isolation) -> str | None:
        return isolation_on_this_host(wanted)

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        shared = shared_variables(request, marker, LOCALHOST, ports)
        roles = [("scheduler", 0)] if request.scheduler else []
        roles += [("server", rank) for rank in range(request.servers)]
        roles += [("worker", rank) for rank in range(request.workers)]
        return [
            Process(
                f"{role}-{rank}",
                request.command,
                {**shared, "STEPTIME_ROLE": role, "STEPTIME_RANK": str(rank), "STEPTIME_LOCAL_RANK": str(rank)},
                entry_of(request),
            )
            for role, rank in roles
        ]


_INTERFACE = "lo"
_MPICH_FLAGS = ("-iface", _INTERFACE)
_OPEN_MPI_SETTINGS = {
    "OMPI_MCA_btl_tcp_if_include": _INTERFACE,
    "OMPI_MCA_oob_tcp_if_include": _INTERFACE,
    "PRTE_MCA_prte_if_include": _INTERFACE,
}
"""For Open MPI 4 and 5; they keep its sockets from interfaces that others can reach."""


class MpiLauncher(AbstractLauncher):
    """Starts one ``mpiexec`` that starts the workers; the environment's own is preferred to the system's.

    A launcher and a library of different MPI families do not work together, and the environment's library came
    with the environment's launcher. On the hosts of a site, the mpiexec runs on the first, and has agents of ssh or
    Slurm start its processes on the others.
    """

    name = "mpi"
    summary = "workers started by the mpiexec of the framework's environment, or else the system's"

    def isolation(self, wanted: Isolation) -> str | None:
        return isolation_on_this_host(wanted)

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        if request.site is not None:
            return planned_on_hosts(replace(request, mpi=True), self.name, marker, ports)
        shared = shared_variables(request, marker, LOCALHOST, ports)
        mpiexec = find_mpiexec(request.interpreter, request.container)
        tether = "steptime/worker/tether.py"  # mpiexec knows nothing of its parent; the tether ties it
        argv = (
            sys.executable if request.container else str(request.interpreter),
            tether,
            str(mpiexec),
            *(open_mpi_flags(mpiexec) if is_open_mpi(mpiexec) else _MPICH_FLAGS),
            "-n",
            str(request.workers),
            *request.command,
        )
        variables = {**shared, **_OPEN_MPI_SETTINGS, "STEPTIME_ROLE": "worker"}
        return [Process("mpiexec", argv, variables, entry_of(request))]

    def missing_requirement(self, request: Request) -> str | None:
        reason = missing_mpiexec(request)
        return reason if reason is None or request.mpi else f"{reason}; launcher=auto starts these workers without one"

    def run(self, request: Request) -> LaunchOutcome:
        if request.site is not None:
            return run_on_hosts(replace(request, mpi=True), self.name)
        return super().run(request)


class _SiteLauncher(AbstractLauncher):
    """Starts one host agent on each host of the site, which starts, watches and ends the processes there."""

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return planned_on_hosts(request, self.name, marker, ports)

    def missing_requirement(self, request: Request) -> str | None:
        return missing_mpiexec(request) if request.mpi else None

    def run(self, request: Request) -> LaunchOutcome:
        return run_on_hosts(request, self.name)


class AllocationLauncher(_SiteLauncher):
    """Reaches the hosts of the job that steptime runs in: by srun in a job of Slurm, and otherwise by ssh."""

    name = "allocation"
    summary = "workers and servers on the hosts of the job around it: Slurm, PBS, LSF, Grid Engine, Flux, an MPIJob"


class RayLauncher(_SiteLauncher):
    """Reaches all nodes by one driver of Ray for each launch, whose actors start the host agents."""

    name = "ray"
    summary = "workers and servers on the nodes of a Ray cluster, held by a placement group"

    def missing_requirement(self, request: Request) -> str | None:
        return why_absent("ray") or super().missing_requirement(request)


class SshLauncher(_SiteLauncher):
    """Reaches each host by an ssh of its own.

    Which key, user, port or jump host leads to a host is for the user's ssh configuration to say.
    """

    name = "ssh"
    summary = "workers and servers on a list of hosts, reached by the user's own ssh"


class SlurmLauncher(_SiteLauncher):
    """Reaches all nodes by one srun for each launch; steps of all frameworks share the nodes in turns.

    The exit code of srun is useless: it is 0 where a node died. Only messages of the host agents count.
    """

    name = "slurm"
    summary = "workers and servers on the nodes of a Slurm allocation, a step for each launch"


_OWN: dict[str, type[AbstractLauncher]] = {
    launcher.name: launcher
    for launcher in (
        AllocationLauncher,
        EmulatedLauncher,
        InlineLauncher,
        LocalLauncher,
        MpiLauncher,
        RayLauncher,
        SlurmLauncher,
        SshLauncher,
    )
}
LAUNCHERS = Registry(
    "launcher",
    _OWN,
    lambda found: isinstance(found, type) and issubclass(found, AbstractLauncher),
    "a subclass of steptime.launchers.base.AbstractLauncher",
)


def launcher_named(name: str) -> AbstractLauncher:
    """Return the launcher ``name``.

    Raises UsageError with the choices for an unknown name, PluginError for a plug-in that cannot be used.
    """
    if name not in LAUNCHERS:
        raise UsageError(choices_message("launcher", name, LAUNCHERS))
    return LAUNCHERS[name]()
