"""Processes of launches that time nothing begin with their framework imported, by a fork of a process that has done so.

Most of a check's time would be the import: two to four processor seconds for each of some hundred processes. A launch
that is timed has fresh processes, since how these differ belongs to its interval (docs/decisions/0019-short-runs.md).
"""

import contextlib
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import environ
from pathlib import Path

import steptime
from steptime.catalog.manifest import Manifest
from steptime.launchers.orphans import MarkedProcess, await_ends
from steptime.launchers.process_env import inherited, shared_variables
from steptime.launchers.request import Request
from steptime.plain_file import remove_left_folders, temporary_folder
from steptime.process_identity import start_ticks
from steptime.worker import fork_server

_SOURCE = Path(steptime.__file__).parents[1]
_SERVER = Path(fork_server.__file__)
_PURPOSE = "servers"
_ADDRESS = "socket"
_LOOKS_EVERY_S = 0.2
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
        server = self._server(manifest, request)
        server.await_import(request.time_limit_s, request.cancelled)
        return replace(request, interpreter=server.stand_in)

    def _server(self, manifest: Manifest, request: Request) -> _Server:
        shared = shared_variables(request, "", "", [0] * (1 + request.workers + request.servers))
        variables = {**inherited(environ), **shared}
        # What names the launch would start a server for each.
        kept = {name: value for name, value in variables.items() if not name.startswith(("STEPTIME_", "PYTEST_"))}
        key = (manifest.name, str(request.interpreter), *(f"{name}={value}" for name, value in sorted(kept.items())))
        with self._lock:
            if key not in self._servers or self._servers[key].process.poll() is not None:
                self._starter = self._starter or self._open.enter_context(ThreadPoolExecutor(1, "preloading"))
                self._servers[key] = self._starter.submit(self._start, manifest, request.interpreter, kept).result()
            return self._servers[key]

    def close(self) -> None:
        """End all of them; one that is asked for later is started anew."""
        with self._lock:
            self._open.close()
            self._servers.clear()
            self._folder = self._starter = None

    def _start(self, manifest: Manifest, interpreter: Path, environment: Mapping[str, str]) -> _Server:
        if self._folder is None:
            self._folder = self._open.enter_context(temporary_folder(_PURPOSE))
        folder = self._folder / str(len(list(self._folder.iterdir())))
        folder.mkdir()
        address = str(folder / _ADDRESS)
        with socket.socket(socket.AF_UNIX) as listener, (folder / "server.log").open("ab") as log:
            listener.bind(address)
            listener.listen(64)
            process = subprocess.Popen(
                [str(interpreter), str(_SERVER), str(listener.fileno()), str(_SOURCE), *manifest.preloading.imports],
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
        return _Server(process, stand_in)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


def await_copies(folder: Path) -> None:
    """Wait until no forked process of the launch in ``folder`` runs; its stand-in may have been ended before it."""
    copies = []
    for path in folder.glob(f"*{fork_server.FORKED}"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            if (started := start_ticks(pid)) is not None:
                copies.append(MarkedProcess(pid, started))
    await_ends(copies)
