"""The launcher ``slurm``: processes on the nodes of a Slurm allocation, one step for each launch."""

from collections.abc import Sequence

from steptime.launchers.base import AbstractLauncher
from steptime.launchers.hosts.launch import planned_on_hosts, run_on_hosts
from steptime.launchers.request import LaunchOutcome, Process, Request


class SlurmLauncher(AbstractLauncher):
    """Starts one srun, whose tasks are a far end on each node; steps of all frameworks share the nodes in turns.

    The exit code of srun says nothing: it is 0 where a node died. Only what the far ends say counts.
    """

    name = "slurm"
    summary = "workers and servers on the nodes of a Slurm allocation, a step for each launch"

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return planned_on_hosts(request, self.name, marker, ports)

    def run(self, request: Request) -> LaunchOutcome:
        return run_on_hosts(request, self.name)
