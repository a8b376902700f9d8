"""Workers that start with their framework imported already: most of a short launch's time is the import.

A preloaded worker is forked from a process that has imported the framework in the environment of such a worker, by the
code that the framework's manifest has in ``[contract]``. What it computes is what a worker computes that was started as
usual; what happens before and during the import is not tested by it. Every strategy of every framework is also started
as usual by the contract suite, with timed steps.
"""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from steptime.catalog.manifest import load_manifests
from steptime.launchers.process_env import inherited, shared_variables
from steptime.launchers.request import Request

_SERVER = Path(__file__).with_name("fork_server.py")
_SOURCE = Path(__file__).parents[2] / "src"

_STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
again = [] if os.environ["STEPTIME_ROLE"] == "worker" else {again!r}
wanted = dict(folder=os.getcwd(), argv=sys.argv[1:], environment=dict(os.environ), again=again)
text = json.dumps(wanted).encode()
socket.send_fds(server, [len(text).to_bytes(4, "big")], [0, 1, 2])
server.sendall(text)
status = server.recv(4)
code = os.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else 1
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""Stands for the interpreter: has the worker forked, and ends as it ends. When it is killed, so is the worker."""


def preloaded_interpreter(framework: str, interpreter: Path, threads: int = 1) -> Path:
    """Return a program that runs a script of a process, whose STEPTIME_ROLE is set, with the framework imported.

    Args:
        framework: by its name; of one whose manifest has no ``preload``, ``interpreter`` itself is returned.
        interpreter: the Python of the framework's environment.
        threads: of a worker; the import gets the environment of one that has as many.
    """
    if not load_manifests()[framework].contract.preload:
        return interpreter
    request = Request(Path(), interpreter, 1, threads=threads)
    shared = shared_variables(request, "", "", [0, 0])
    variables = {**inherited(os.environ), **shared}
    # What names the launch or the test would start a server for each of them.
    environment = {name: value for name, value in variables.items() if not name.startswith(("STEPTIME_", "PYTEST_"))}
    return _stand_in(framework, interpreter, tuple(sorted(environment.items())))


@cache
def _stand_in(framework: str, interpreter: Path, environment: tuple[tuple[str, str], ...]) -> Path:
    """Start a server for ``framework`` in ``environment``, once per session, and return the program that asks it."""
    folder = Path(tempfile.mkdtemp(prefix="preloaded-"))
    address = str(folder / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    _start_server(framework, interpreter, dict(environment), listener, folder)
    stand_in = folder / "python"
    stand_in.write_text(
        _STAND_IN.format(
            python=Path(sys.executable).resolve(),
            address=address,
            again=load_manifests()[framework].contract.imported_again,
        )
    )
    stand_in.chmod(0o700)
    return stand_in


def _start_server(
    framework: str, interpreter: Path, environment: Mapping[str, str], listener: socket.socket, folder: Path
) -> None:
    source, preload = repr(str(_SOURCE)), load_manifests()[framework].contract.preload
    code = f"import sys; sys.path.insert(1, {source}); {preload}; sys.path.remove({source})"
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [str(interpreter), str(_SERVER), str(listener.fileno()), code],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    listener.close()
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.wait)
    atexit.register(server.kill)
