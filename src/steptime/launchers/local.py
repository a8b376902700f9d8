"""The launcher ``local``: all processes on this host, started directly."""

from collections.abc import Sequence

from steptime.launchers.base import LOCALHOST, AbstractLauncher
from steptime.launchers.isolation import entry_of, isolation_on_this_host
from steptime.launchers.process_env import shared_variables
from steptime.launchers.request import Isolation, Process, Request


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
