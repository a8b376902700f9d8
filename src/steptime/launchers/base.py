"""The seam of the launchers.

Requirements: ``plan`` is pure and says exactly what ``run`` would start, so that a dry run can print it; ``run``
returns only when no process of the launch is alive; a failure of a process is an Outcome, not an exception.
"""

import abc
import uuid
from collections.abc import Sequence
from typing import ClassVar

from steptime.launchers.ports import free_ports
from steptime.launchers.request import Outcome, Process, Request
from steptime.launchers.watching import watch

LOCALHOST = "127.0.0.1"


class AbstractLauncher(abc.ABC):
    """A way of starting the processes of one launch."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for ``steptime list launchers``."""

    @abc.abstractmethod
    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        """Return the processes in the order of their start.

        Args:
            request: the launch.
            marker: a text that no other launch has.
            ports: free ports: one for the rendezvous, one per worker, one per server.
        """

    def run(self, request: Request) -> Outcome:
        """Start the processes, watch them to their end and leave none behind.

        Raises LaunchError when a process cannot be started at all.
        """
        marker = uuid.uuid4().hex
        ports = free_ports(1 + request.workers + request.servers, LOCALHOST)
        return watch(self.plan(request, marker, ports), request, marker)
