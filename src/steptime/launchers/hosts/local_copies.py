"""The copy of an environment on a host's own disk, made once, from which its processes are started.

A host agent makes it: only the standard library is imported. The ``cp`` that copies ends with its agent, also where
that is killed, and holds the lock of the copy for as long as it lives: so that the same copy is not begun twice.
"""

import fcntl
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO

_TETHER = Path(__file__).parents[2] / "worker" / "tether.py"
_MARKER = "ready.json"
"""It identifies one state of an environment."""
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class LocalCopyError(Exception):
    """A copy cannot be made; the message has the cause."""


def local_copy(source: str, place: str) -> str:
    """Return the copy of an environment on this host, made where there is none or another one.

    Args:
        source: the environment's folder in the shared cache.
        place: a folder of this host's own, which may name variables of this host (``$TMPDIR``).

    Raises LocalCopyError where the place cannot be used: it is another user's, or its disk is full.
    """
    expanded = os.path.expandvars(place)
    if "$" in expanded or not expanded.startswith("/"):
        message = f"{place} is not a folder on this host ({expanded})"
        raise LocalCopyError(message)
    try:
        own = _own_folder(Path(expanded))
        target = own / Path(source).name
        with (own / f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two launches of one user, or of two studies
            if not _is_same(Path(source), target):
                _copy(Path(source), target, lock)
    except OSError as error:
        message = f"{expanded} cannot be used: {error.strerror} ({error.filename})"
        raise LocalCopyError(message) from error
    return str(target)


def moved(text: str, source: str, target: str) -> str:
    """Return an argument or a variable with each path in ``source`` replaced by that in ``target``."""
    return target if text == source else text.replace(f"{source}/", f"{target}/")


def _own_folder(place: Path) -> Path:
    """Return the folder of this user in a place where others may write; no other user can have put anything into it."""
    place.mkdir(parents=True, exist_ok=True)
    own = place / f"steptime-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OPEN_TO_OTHERS:
        message = f"{own} is not a folder that only this user can write to; remove it, or choose another place"
        raise LocalCopyError(message)
    return own


def _is_same(source: Path, target: Path) -> bool:
    marker = target / _MARKER
    return marker.exists() and marker.read_bytes() == (source / _MARKER).read_bytes()


def _copy(source: Path, target: Path, lock: IO[str]) -> None:
    """Replace whatever lies at ``target`` by a copy, under ``lock``; links stay links, and point to where they did."""
    partial = target.with_name(f"{target.name}.partial")
    for old in (target, partial):
        if old.exists():
            shutil.rmtree(old)
    command = ["cp", "-a", "--", str(source), str(partial)]
    failure = _failure_of(command, lock)
    if failure:
        shutil.rmtree(partial, ignore_errors=True)
        message = f"{shlex.join(command)} failed: {failure}"
        raise LocalCopyError(message)
    partial.rename(target)


def _failure_of(command: list[str], lock: IO[str]) -> str | None:
    """Run a program that dies with this thread and inherits ``lock``; return why it failed, None if it did not."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(_TETHER), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        pass_fds=[lock.fileno()],
        env={**os.environ, "STEPTIME_PARENT": str(os.getpid())},
    ) as running:
        assert running.stderr  # noqa: S101 - it is a pipe
        said = running.stderr.read().strip().splitlines()
        try:
            ended = os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # an agent that takes leave has ended and awaited it; subprocess would say success
            return "it was ended"
    if ended is None or (ended.si_code == os.CLD_EXITED and ended.si_status == 0):
        return None
    how = "exit code" if ended.si_code == os.CLD_EXITED else "signal"
    return said[-1] if said else f"{how} {ended.si_status}"
