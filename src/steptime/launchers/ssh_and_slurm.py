"""The launchers ``ssh`` and ``slurm``: processes on the hosts of a list, or on the nodes of a Slurm allocation."""

from collections.abc import Sequence

from steptime.launchers.base import AbstractLauncher
from steptime.launchers.hosts.launch import planned_on_hosts, run_on_hosts
from steptime.launchers.mpiexec import missing_mpiexec
from steptime.launchers.request import LaunchOutcome, Process, Request


class _SiteLauncher(AbstractLauncher):
    """Starts one host agent on each host of the site, which starts, watches and ends the processes there."""

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return planned_on_hosts(request, self.name, marker, ports)

    def missing_requirement(self, request: Request) -> str | None:
        return missing_mpiexec(request) if request.mpi else None

    def run(self, request: Request) -> LaunchOutcome:
        return run_on_hosts(request, self.name)


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
