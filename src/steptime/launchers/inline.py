"""The launcher ``inline``: one worker inside the runner's process, for debugging and quick tests."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from steptime.errors import LaunchError
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.request import Isolation, LaunchOutcome, Process, Request
from steptime.worker.main import run_process


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
