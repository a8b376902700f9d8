"""The processes of a launch: started, watched to their end, and none left behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import steptime
from steptime.errors import LaunchError
from steptime.interruption import shielded, signal_name
from steptime.launchers.hang import cause_of_hang, last_words
from steptime.launchers.orphans import await_ends, end_marked, marked
from steptime.launchers.process_env import inherited
from steptime.launchers.request import LATE, LaunchOutcome, Process, Request
from steptime.plain_file import appending

_POLL_S = 0.02
_GRACE_S = 2.0
"""How long a process may take to end after it was asked to."""
_SERVER_GRACE_S = 5.0
"""How long servers may take to end after the last worker has."""
_END_AFTER_RUNNER = """
import sys
sys.path.append(sys.argv[1])
from steptime.launchers.orphans import end_after_runner
end_after_runner(sys.argv[2])
"""


def watch(
    processes: Sequence[Process], request: Request, marker: str, broken: Callable[[], str | None] = lambda: None
) -> LaunchOutcome:
    """Run ``processes`` until all workers end, one fails, the time is up, or the launch is cancelled.

    The first failure ends all others at once. Servers and schedulers that are still there after the workers have
    ended are ended too. On Interrupted everything is ended before it is raised again.

    Args:
        processes: in the order of their start.
        request: the launch.
        marker: by which everything that the processes start is found.
        broken: returns in a sentence what of the launch's surroundings has failed, which ends the launch at once.

    Raises LaunchError when a process cannot be started.
    """
    started = time.monotonic()
    running: dict[str, subprocess.Popen[bytes]] = {}
    reason = None
    with _containers_ended_after_runner(request, marker):
        try:
            for process in processes:
                running[process.name] = _start(process, request.folder)
            reason = _wait(running, started + request.time_limit_s, request, broken)
        finally:
            with shielded():
                ending = marked(marker)
                _end(list(running.values()))
                end_marked(marker)
                await_ends(ending)
    return LaunchOutcome(reason is None, reason, time.monotonic() - started, [list(each.argv) for each in processes])


@contextlib.contextmanager
def _containers_ended_after_runner(request: Request, marker: str) -> Iterator[None]:
    """Have another process end the containers of a launch, should this one be killed within the block.

    A program in a container of podman is no child of whoever started it, and would go on.
    """
    if not request.container:
        yield
        return
    root, silent = str(Path(steptime.__file__).parents[1]), subprocess.DEVNULL
    command = [sys.executable, "-I", "-S", "-c", _END_AFTER_RUNNER, root, marker]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True
    ):  # its input ends with the block, or with this process
        yield


def _start(process: Process, folder: Path) -> subprocess.Popen[bytes]:
    if process.entry and shutil.which(process.argv[0]) is None:
        message = f"could not start {process.argv[0]}: it is not a program"  # the entry would start, and fail later
        raise LaunchError(message)
    # The worker moves its output to files of its own; these take what is said before, or by an MPI launcher.
    with appending(folder, f"{process.name}.launch") as output:
        try:
            return subprocess.Popen(
                (*process.entry, *process.argv),
                cwd=folder,
                env={**inherited(os.environ), **process.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            message = f"could not start {process.argv[0]}: {error.strerror}"
            raise LaunchError(message) from error


def _wait(
    running: dict[str, subprocess.Popen[bytes]], deadline: float, request: Request, broken: Callable[[], str | None]
) -> str | None:
    waited_for = {name: each for name, each in running.items() if not name.startswith(("server", "scheduler"))}
    while True:
        if reason := broken():
            return reason
        codes = {name: each.poll() for name, each in running.items()}
        failed = {name: code for name, code in codes.items() if code}
        if failed:
            return "; ".join(f"{name} {how_it_ended(code)}" for name, code in failed.items())
        stopped = [name for name, code in codes.items() if code is None and _was_stopped(running[name].pid)]
        if stopped:
            return how_it_was_stopped(", ".join(stopped))
        if all(codes[name] == 0 for name in waited_for):
            _wait_for_servers(running)
            return None
        if time.monotonic() > deadline:
            late = {name: running[name].pid for name, code in codes.items() if code is None}
            reason = f"{LATE} of {request.time_limit_s:g} s: {', '.join(late)} still running"
            return "; ".join(filter(None, [reason, last_words(request.folder), cause_of_hang(late, request.folder)]))
        if request.cancelled.wait(_POLL_S):
            return "cancelled"


def how_it_ended(code: int) -> str:
    """Say how a process ended, by its exit code; a signal is a negative one."""
    if code >= 0:
        return f"ended with exit code {code}"
    hint = "; the system kills a process like this when memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {signal_name(-code)}{hint}"


def _was_stopped(pid: int) -> bool:
    """Say whether a signal has stopped a child since the last call, as the host agent of another host does, too."""
    with contextlib.suppress(ChildProcessError):  # it has ended
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None
    return False


def how_it_was_stopped(name: str) -> str:
    """Say why a launch has failed one of whose processes stood still: its steps lasted as long as somebody pleased."""
    return f"{name} is stopped by a signal"


def _wait_for_servers(running: dict[str, subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _SERVER_GRACE_S
    while any(each.poll() is None for each in running.values()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in processes:
        _signal_group(each, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    for each in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(max(0.0, deadline - time.monotonic()))
    for each in processes:
        _signal_group(each, signal.SIGKILL)
        each.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the process and what it started; its session has its own group, which the group's leader may outlive."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
