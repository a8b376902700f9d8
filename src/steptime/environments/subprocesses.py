"""Installers and interpreters as subprocesses: with clean variables, ended with this process, their output kept.

An interpreter in a container is believed only after it has run there; the container is a command that starts a program
in it, as ``apptainer exec IMAGE``.
"""

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptime.environments.fingerprint import surroundings
from steptime.errors import EnvironmentFailure
from steptime.interruption import shielded

_POLL_S = 0.1
_GONE_S = 2.0
_PROMPT = "$ "
"""Before each command in a log."""
_NO_LIBRARY = re.compile(r"(?P<name>lib[\w.+-]+?)\.so\.(?P<version>\d+)[\d.]*: cannot open shared object file")
_FIX = "fix: "
_WIDEST = 400
"""Characters of a line that are quoted: some installers list every version that there is."""
_OF_PIP = re.compile(r"DO NOT MATCH THE HASHES.*\n\s+(\S+)")
_OF_UV = re.compile(r"Hash mismatch for `([^` ]+)")
_HARMLESS = ("is ignored: it is ", "[notice]", "Running pip as the 'root' user", "Expected     or ")
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
FINGERPRINT = Path(__file__).with_name("fingerprint.py")
_DROPPED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
)
"""What would make an interpreter see packages that are not its own, or an installer write elsewhere."""
_CONTAINER_START_S = 600.0
"""The first start of a container may unpack its image."""
_ANYWHERE = Path("/")
"""The folder in which a container is asked: a launch has another one, in which relative paths would mean others."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what reaches into another Python's packages."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, "PYTHONNOUSERSITE": "1", "PIP_USER": "0"}


def run_logged(
    command: Sequence[str | Path],
    log: Path,
    cancelled: threading.Event,
    held: Sequence[int] = (),
    **variables: str,
) -> int:
    """Run ``command`` with its output appended to ``log``; return its exit code.

    A supervisor ends the command with all that it started: when this process dies, on a signal, and when
    ``cancelled`` is set, which raises EnvironmentFailure.

    Args:
        command: an argument list.
        log: in whose folder the command runs.
        cancelled: set from another thread to end the command.
        held: descriptors of locks, which stay taken until all that the command started has ended.
        variables: environment variables of the command.
    """
    with log.open("ab") as file:
        file.write(f"{_PROMPT}{shlex.join(map(str, command))}\n".encode())
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-I", _SUPERVISOR, *map(str, command)],
            stdin=subprocess.PIPE,  # its end makes the supervisor end everything
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), **variables},
            cwd=log.parent,
            start_new_session=True,
            pass_fds=held,
        )
    try:
        while True:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if cancelled.is_set():
                    message = f"stopped: {' '.join(map(str, command))}"
                    raise EnvironmentFailure(message) from None
    finally:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        with shielded():
            process.stdin.close()
            if process.wait() < 0:  # it was killed itself
                _end_group(process.pid)


def _end_group(leader: int) -> None:
    """Kill what a killed supervisor has started, and wait for its end: it writes to what the next one makes."""
    deadline = time.monotonic() + _GONE_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:  # where process 1 reaps nothing, zombies stay
            os.killpg(leader, signal.SIGKILL)
            time.sleep(_POLL_S)


def last_lines(log: Path, count: int = 12) -> list[str]:
    """Return the last command of a log and the last lines that it said, without what is harmless."""
    text = log.read_text(encoding="utf-8", errors="replace")
    command, *lines = text[text.rfind(f"\n{_PROMPT}") + 1 :].splitlines()
    said = [line for line in lines if line.strip() and not any(sign in line for sign in _HARMLESS)]
    return [line if len(line) <= _WIDEST else f"{line[:_WIDEST]} …" for line in (command, *said[-count:])]


def fix_in(log: Path) -> str | None:
    """Return the command that would help the last program of a log.

    It is what the program named in a line ``fix: COMMAND``, or, where it missed a shared library and the system has
    apt, what installs the library's package, which Debian names after the library and its version.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    said = text[text.rfind(f"\n{_PROMPT}") + 1 :]
    named = (line[len(_FIX) :].strip() for line in reversed(said.splitlines()) if line.startswith(_FIX))
    if fix := next(named, None):
        return fix
    missing = _NO_LIBRARY.search(said)
    if missing is None or shutil.which("apt-get") is None:
        return None
    name, version = missing["name"].lower(), missing["version"]
    return f"sudo apt-get install {name}{'-' if name[-1].isdigit() else ''}{version}"


def refused_package(log: Path) -> str | None:
    """Return the package, as ``NAME==VERSION``, whose hash was wrong for the last installer of a log."""
    text = log.read_text(encoding="utf-8", errors="replace")
    said = text[text.rfind(f"\n{_PROMPT}") + 1 :]
    found = _OF_PIP.search(said) or _OF_UV.search(said)
    return found[1] if found else None


def ask(
    command: Sequence[str | Path], time_limit_s: float, folder: Path | None = None, /, **variables: str
) -> tuple[int, str]:
    """Run a command that only answers; return its exit code and all it said, 127 when it cannot be run at all.

    What the command has started ends with it: a program in a container is a child of the container's.

    Args:
        command: an argument list.
        time_limit_s: after which it is ended, with the exit code 124.
        folder: in which it runs; the current one by default.
        variables: added to its environment.
    """
    try:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), **variables},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        return 127, error.strerror or str(error)
    with process:
        try:
            said, _ = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            return 124, f"no answer within {time_limit_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said.decode(errors="replace").strip()


def fingerprint_of(interpreter: Path) -> dict[str, Any]:
    """Return what an interpreter reports of itself: ``python``, ``interpreter``, ``platform``, ``packages``.

    Raises EnvironmentFailure when it does not answer.
    """
    code, said = ask([interpreter, "-I", FINGERPRINT], 120.0)
    answer = answer_in(said)
    if code or answer is None:
        message = f"{interpreter} does not work as a Python interpreter (exit code {code}): {said[-500:]}"
        raise EnvironmentFailure(message)
    return answer


def answer_in(said: str) -> dict[str, Any] | None:
    """Return the object of JSON, a line of its own, in what a program said; None if there is none."""
    try:
        answer = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    except (ValueError, StopIteration):
        return None
    return answer if isinstance(answer, dict) else None


def container_fingerprint(name: str, container: Sequence[str], interpreter: Path) -> dict[str, Any]:
    """Return what an interpreter in a container reports of itself, as ``fingerprint_of`` does for others.

    Args:
        name: of the framework.
        container: the words of the command that starts a program in the container.
        interpreter: a path in the container, or a command that it finds.

    Raises EnvironmentFailure with what is missing and what would help.
    """
    here = f"environments.{name}.container"
    if shutil.which(container[0]) is None:
        message = (
            f"{here}: no program {container[0]!r} on this machine's PATH to start {interpreter} in a "
            "container; install it on every host, load its module before steptime starts (steptime submit "
            "--setup 'module load …'), or write its whole path"
        )
        raise EnvironmentFailure(message)
    mark = secrets.token_hex(8)
    command = [*container, str(interpreter), "-I", str(FINGERPRINT), "--container"]
    code, said = ask(command, _CONTAINER_START_S, _ANYWHERE, STEPTIME_MARK=mark)
    answer = answer_in(said)
    tried = f"\ntried: {shlex.join(command)}"
    if code and f"can't open file '{FINGERPRINT}'" in said:
        message = (
            f"{here}: the container does not have steptime's files at {FINGERPRINT.parents[1]}; it must see "
            "steptime's installation, the datasets and the results folder at the paths that they have outside "
            f"(apptainer: --bind PATH; bwrap: --bind PATH PATH){tried}"
        )
        raise EnvironmentFailure(message)
    if code or answer is None:
        lines = "".join(f"\n  | {line}" for line in said.splitlines()[-12:])
        message = f"{here}: {interpreter} does not work in the container (exit code {code}):{lines}{tried}"
        raise EnvironmentFailure(message)
    if answer.get("mark") != mark:
        message = (
            f"{here}: the container keeps environment variables from its programs, and workers learn from them which "
            "they are; let it pass them on (apptainer: without --cleanenv and --containall; bwrap: without "
            f"--clearenv; podman: --env-host){tried}"
        )
        raise EnvironmentFailure(message)
    if answer.get("network") not in (None, surroundings()["network"]):
        message = (
            f"{here}: the container has a network of its own, in which workers do not find each other; let it share "
            "that of whoever starts it (apptainer: without --net; bwrap: without --unshare-net and --unshare-all; "
            f"podman: --network=host){tried}"
        )
        raise EnvironmentFailure(message)
    return answer
