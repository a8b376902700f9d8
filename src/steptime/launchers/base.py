"""The interface of all launchers, and free ports for their launches.

Requirements: ``plan`` is pure and returns exactly the processes that ``run`` starts, so that a dry run can print them;
``run`` returns only when no process of the launch is alive; a failure of a process is a LaunchOutcome, not an
exception.
"""

import abc
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import ClassVar

from steptime.errors import LaunchError
from steptime.launchers.hosts.host_facts import FIRST_PORT, LAST_PORT, ports_free_at
from steptime.launchers.namespaces import made_network, require_device_file, starts_in_private_network
from steptime.launchers.processes import watch
from steptime.launchers.request import Isolation, LaunchOutcome, Process, Request

LOCALHOST = "127.0.0.1"


def free_ports(count: int, host: str = LOCALHOST) -> list[int]:
    """Return ``count`` different ports that are free now.

    Raises LaunchError when too few are free.
    """
    found = ports_free_at(host, count)
    if len(found) < count:
        message = f"found only {len(found)} of {count} free ports between {FIRST_PORT} and {LAST_PORT} on {host}"
        raise LaunchError(message)
    return found


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

    def isolation(self, wanted: Isolation) -> str | None:
        """Say in a few words what keeps others out of the sockets of a launch; None if nothing does.

        A launcher that returns ``isolation_on_this_host(wanted)`` must plan processes with ``entry_of(request)``.
        """
        del wanted
        return None

    def missing_requirement(self, request: Request) -> str | None:
        """Say in a sentence what is missing here to start a launch, and what would help; None if nothing is known.

        Asked once for each trial before anything is launched, when its interpreter is there. A dry run asks too, so
        that it must start no process.
        """
        del request
        return None

    def run(self, request: Request) -> LaunchOutcome:
        """Start the processes, watch them to their end and leave none behind.

        Raises LaunchError when a process cannot be started at all.
        """
        if request.isolation == "preferred" and self.isolation("preferred") and not starts_in_private_network(request):
            request = replace(request, isolation="off")
        marker = uuid.uuid4().hex
        ports = free_ports(1 + request.workers + request.servers, LOCALHOST)
        kind = self.isolation(request.isolation)
        if request.on_devices:
            require_device_file(kind)
        with made_network(kind, request.folder) if kind else nullcontext():
            outcome = watch(self.plan(request, marker, ports), request, marker)
        return replace(outcome, isolation=kind)
