"""The launcher ``ssh``: processes on a list of hosts, by the user's own OpenSSH."""

from collections.abc import Sequence

from steptime.launchers.base import AbstractLauncher
from steptime.launchers.hosts.launch import planned_on_hosts, run_on_hosts
from steptime.launchers.request import LaunchOutcome, Process, Request


class SshLauncher(AbstractLauncher):
    """Starts one far end on each host, which starts, watches and ends the processes there.

    Which key, user, port or jump host leads to a host is for the user's ssh configuration to say.
    """

    name = "ssh"
    summary = "workers and servers on a list of hosts, reached by the user's own ssh"

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return planned_on_hosts(request, self.name, marker, ports)

    def run(self, request: Request) -> LaunchOutcome:
        return run_on_hosts(request, self.name)
