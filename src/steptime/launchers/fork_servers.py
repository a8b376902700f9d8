"""Processes of launches begin with their framework imported, by a fork of a process that has done so.

Most of a short launch's time would be the import: two to four processor seconds of each process. How processes that
have imported differ belongs to the interval of a step, so that launches of one trial that are timed are forked from
several of them (docs/decisions/0020-short-runs.md).
"""

import contextlib
import resource
import secrets
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import environ, sched_getaffinity
from pathlib import Path

import psutil

import steptime
from steptime.catalog.manifest import Manifest
from steptime.launchers.orphans import MarkedProcess, await_ends
from steptime.launchers.process_env import inherited, shared_variables
from steptime.launchers.request import Request
from steptime.plain_file import remove_left_folders, temporary_folder
from steptime.process_identity import start_ticks
from steptime.worker import fork_server
from steptime.worker.usage import cpu_s

_SOURCE = Path(steptime.__file__).parents[1]
_SERVER = Path(fork_server.__file__)
_PURPOSE = "servers"
_ADDRESS = "socket"
_LOOKS_EVERY_S = 0.2
_LEAST_MEMORY_BYTES = 2 * 2**30
"""Where less is free, no process stays that has imported another framework: each holds 0.1 to 0.5 GB."""
_STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys

def begin_afresh():
    os.execv({interpreter!r}, [{interpreter!r}] + sys.argv[1:])

server = socket.socket(socket.AF_UNIX)
again = [] if os.environ["STEPTIME_ROLE"] == "worker" else {again!r}
wanted = dict(folder=os.getcwd(), argv=sys.argv[1:], environment=dict(os.environ), again=again)
text = json.dumps(wanted).encode()
own = [os.open("/proc/self/ns/" + name, os.O_RDONLY) for name in ("user", "net", "mnt")]
try:
    server.connect({address!r})
    socket.send_fds(server, [len(text).to_bytes(4, "big")], [0, 1, 2] + own)
    server.sendall(text)
except OSError:
    begin_afresh()
status = server.recv(4)
code = os.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else -signal.SIGABRT
if code == {not_there}:
    begin_afresh()
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""Stands for the interpreter: has the process forked, and ends as it ends. When it is killed, so is the process.

Where nothing answers it begins the process afresh; a server that dies meanwhile counts as a crash, after which a check
is repeated."""


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes]
    stand_in: Path
    serves_timed: bool
    """Whether launches that are timed may be forked from it."""
    timed: Counter[str] = field(default_factory=Counter)
    """Such launches, by the id of their trial."""

    def await_import(self, limit_s: float, cancelled: threading.Event) -> None:
        """Wait until the framework is imported, or no longer; what goes wrong meanwhile the launch itself will meet."""
        until = time.monotonic() + limit_s
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
            asking.connect(str(self.stand_in.with_name(_ADDRESS)))
            asking.shutdown(socket.SHUT_WR)  # who asks for nothing is sent away, once there is time for that
            asking.settimeout(_LOOKS_EVERY_S)
            while self.process.poll() is None and time.monotonic() < until and not cancelled.is_set():
                with contextlib.suppress(TimeoutError):
                    asking.recv(1)
                    return


class Preloading:
    """The processes that have imported a framework each, started when they are first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, ...], _Server] = {}
        self._open = contextlib.ExitStack()
        self._folder: Path | None = None
        # The kernel ends a server with the thread that started it: one that lives until all servers are ended.
        self._starter: ThreadPoolExecutor | None = None
        weakref.finalize(self, self._open.close)
        remove_left_folders(_PURPOSE)

    def request(self, request: Request, manifest: Manifest) -> Request:
        """Return the launch with an interpreter that starts its processes with the framework imported, where it can.

        The import is over then: a launch does not hold the cores of others for it.
        """
        if not manifest.preloading.imports or request.container:
            return request
        return _forked_from(self._server(manifest, request), request)

    def timed_request(self, request: Request, manifest: Manifest, trial: str, most: int) -> Request:
        """Likewise for a launch of a trial that is timed; it is fresh where forks were not shown to be like that.

        Args:
            request: of the launch.
            manifest: of its framework.
            trial: its id.
            most: launches of one trial that one import serves; with 0 all are fresh.
        """
        if not _forks_are_like_fresh(request, manifest, most):
            return request
        return _forked_from(self._server(manifest, request, trial, most, taken=1), request)

    def begin_import(self, request: Request, manifest: Manifest, trial: str, most: int) -> None:
        """Let the process import from which the next such launch is forked, if it is one that is."""
        if _forks_are_like_fresh(request, manifest, most):
            self._server(manifest, request, trial, most)

    def await_imports(self, limit_s: float, cancelled: threading.Event) -> None:
        """Wait until no process imports any more."""
        for server in [*self._servers.values()]:
            server.await_import(limit_s, cancelled)

    def _server(
        self, manifest: Manifest, request: Request, trial: str | None = None, most: int = 0, *, taken: int = 0
    ) -> _Server:
        """Return the process that a launch is forked from, a new one where a trial has taken ``most`` of its forks."""
        shared = shared_variables(request, "", "", [0] * (1 + request.workers + request.servers))
        variables = {**inherited(environ), **shared}
        # What names the launch would start a server for each.
        kept = {name: value for name, value in variables.items() if not name.startswith(("STEPTIME_", "PYTEST_"))}
        counted = 0 if request.on_devices else request.cores_of_each
        own = (manifest.name, str(request.interpreter), str(counted))
        key = (*own, *(f"{name}={value}" for name, value in sorted(kept.items())))
        with self._lock:
            server = self._servers.get(key)
            if server is not None and (server.process.poll() is not None or (trial and server.timed[trial] >= most)):
                _end(self._servers.pop(key).process)
                server = None
            if server is None:
                if psutil.virtual_memory().available < _LEAST_MEMORY_BYTES and trial:
                    self._end_all(but_timed=False)
                self._starter = self._starter or self._open.enter_context(ThreadPoolExecutor(1, "preloading"))
                started = self._starter.submit(self._start, manifest, request.interpreter, kept, counted)
                server = self._servers[key] = started.result()
            if trial:
                server.timed[trial] += taken
            return server

    def close(self) -> None:
        """End all of them; one that is asked for later is started anew."""
        with self._lock:
            self._open.close()
            self._servers.clear()
            self._folder = self._starter = None

    def close_but_timed(self) -> None:
        """End those that no launch which is timed is forked from."""
        with self._lock:
            self._end_all(but_timed=True)

    def processor_s(self) -> float:
        """Return the processor seconds of this process, of those that it has waited for, and of copies that ended."""
        ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        living = [each.process.pid for each in self._servers.values() if each.process.returncode is None]
        return sum(each.ru_utime + each.ru_stime for each in ended) + sum(cpu_s(str(pid)) for pid in living)

    def _end_all(self, *, but_timed: bool) -> None:
        for key, server in list(self._servers.items()):
            if not (but_timed and server.serves_timed):
                _end(self._servers.pop(key).process)

    def _start(self, manifest: Manifest, interpreter: Path, environment: Mapping[str, str], counted: int) -> _Server:
        if self._folder is None:
            self._folder = self._open.enter_context(temporary_folder(_PURPOSE))
        folder = self._folder / f"{manifest.name}-{secrets.token_hex(6)}"
        folder.mkdir()
        usable = sorted(sched_getaffinity(0))
        # Imports beside each other do not wait for one core.
        first = counted * len(list(self._folder.iterdir()))
        seen = {usable[(first + number) % len(usable)] for number in range(counted)}
        address = str(folder / _ADDRESS)
        with socket.socket(socket.AF_UNIX) as listener, (folder / "server.log").open("ab") as log:
            listener.bind(address)
            listener.listen(64)
            process = subprocess.Popen(
                [
                    *(str(interpreter), str(_SERVER), str(listener.fileno()), ",".join(map(str, sorted(seen)))),
                    *(str(_SOURCE), *manifest.preloading.imports),
                ],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        self._open.callback(_end, process)
        stand_in = folder / "python"
        stand_in.write_text(
            _STAND_IN.format(
                python=Path(sys.executable).resolve(),
                interpreter=str(interpreter),
                address=address,
                again=manifest.preloading.imported_again,
                not_there=fork_server.NOT_THERE,
            )
        )
        stand_in.chmod(0o700)
        return _Server(process, stand_in, serves_timed=manifest.preloading.timed and counted > 0)


def _forked_from(server: _Server, request: Request) -> Request:
    server.await_import(request.time_limit_s, request.cancelled)
    return replace(request, interpreter=server.stand_in)


def _forks_are_like_fresh(request: Request, manifest: Manifest, most: int) -> bool:
    own = request.on_devices or request.cores_per_worker is not None or request.container
    return most > 0 and manifest.preloading.timed and bool(manifest.preloading.imports) and not own


def _end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


def import_of(request: Request) -> str | None:
    """Return the name of the import that processes of a launch were forked from; None of a fresh launch."""
    return request.interpreter.parent.name if any(request.folder.glob(f"*{fork_server.FORKED}")) else None


def await_copies(folder: Path) -> None:
    """Wait until no forked process of the launch in ``folder`` runs; its stand-in may have been ended before it."""
    copies = []
    for path in folder.glob(f"*{fork_server.FORKED}"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            if (started := start_ticks(pid)) is not None:
                copies.append(MarkedProcess(pid, started))
    await_ends(copies)
