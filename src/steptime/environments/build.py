"""The build of one environment, under a lock: complete in the end, or not there at all.

The lock is the kernel's, so that a killed process cannot leave it behind, or a lease where the kernel locks nothing.
"""

import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steptime.environments.cache import foreign_writers, verify_digest, wheels_folder, write_marker
from steptime.environments.spec import BuildContext, EnvironmentSpec
from steptime.environments.subprocesses import ask, fingerprint_of, fix_in, last_lines, refused_package, run_logged
from steptime.environments.tools import Command, Tool
from steptime.errors import EnvironmentFailure
from steptime.file_lock import SILENCE_S, FileLock
from steptime.interruption import shielded
from steptime.units import format_bytes, format_seconds

_FULL_BYTES = 2**22
"""An installation that failed with less than this left has failed for want of space."""


@dataclass(frozen=True)
class Build:
    """Makes the environment of ``spec`` at ``folder``; the caller holds its lock."""

    tool: Tool
    spec: EnvironmentSpec
    context: BuildContext
    folder: Path
    lock: int
    """The descriptor of the environment's lock."""

    @property
    def log(self) -> Path:
        """What all commands said; it outlives a failure."""
        return log_of(self.folder)

    def make(self, python: Path, version: str) -> None:
        """Replace what an interrupted attempt left by a new environment, installed, verified and marked.

        Raises EnvironmentFailure when a command fails, OSError when the disk is full or may not be written.
        """
        started = time.monotonic()
        self.log.unlink(missing_ok=True)
        if self.folder.exists():
            self.context.progress("removing what an interrupted attempt left")
            shutil.rmtree(self.folder)
        try:
            steps = self.tool.commands(self.spec, python, version, self.folder)
            installers = {self._run(step, f"{step.stage} failed").installer for step in steps} - {None}
            self._finish()
            self._verify()
            made = {"seconds": time.monotonic() - started, "installers": sorted(map(str, installers))}
            self._mark({**self._describe(), **made})
        except BaseException:
            with shielded():
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.context.progress(f"ready in {format_seconds(time.monotonic() - started)}")

    def verify_again(self, marker: dict[str, Any]) -> None:
        """Verify a complete environment with code that it has not been verified with.

        Raises EnvironmentFailure when it does not work; it is kept, because it works for those who made it.
        """
        try:
            self._verify()
        except EnvironmentFailure as failure:
            fix = f"steptime env remove {self.folder.name}"
            message = f"{failure}\nThe environment is kept, because others may use it; to have it made again: {fix}"
            raise EnvironmentFailure(message, fix=fix) from failure
        self._mark(marker)
        self.context.progress("ready")

    def _run(self, step: Command, what: str) -> Command:
        """Run a step, or what is to be run when it fails; return the one that ended well."""
        self.context.progress(step.stage)
        code = run_logged(step.command, self.log, self.context.cancelled, [self.lock], **step.variables)
        if code and step.otherwise:
            return self._run(step.otherwise, what)
        if code:
            raise EnvironmentFailure(self._failed(f"{what} (exit code {code})"), fix=fix_in(self.log))
        return step

    def _finish(self) -> None:
        if not self.spec.finish:
            return
        program, *arguments = self.spec.finish
        wheels = wheels_folder(self.context.cache)
        wheels.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [self.folder / "bin" / "python", "-I", program, self.folder, *arguments]
        step = Command("building what pip cannot install", command, {"STEPTIME_WHEELS": str(wheels)})
        self._run(step, f"{step.stage} failed")

    def _verify(self) -> None:
        if self.spec.verify:
            interpreter = self.folder / self.spec.program
            step = Command("verifying", [interpreter, "-I", "-c", self.spec.verify])
            self._run(step, "it was installed but does not work")

    def _describe(self) -> dict[str, Any]:
        interpreter = self.folder / self.spec.program
        code, conflicts = ask(self.tool.conflicts(self.folder), 120.0)
        return {
            **fingerprint_of(interpreter),
            "interpreter": str(interpreter),
            "conflicts": conflicts.splitlines() if code else [],
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "bytes": size_of(self.folder),
        }

    def _mark(self, content: dict[str, Any]) -> None:
        named = {"name": self.spec.name, "kind": self.tool.kind, "verified": verify_digest(self.spec)}
        write_marker(self.folder, {**content, **named})

    def _failed(self, what: str) -> str:
        said = last_lines(self.log)
        if refused := refused_package(self.log):
            what = (
                f"{refused} is another file than those that the lock names, and was not installed; either pip is "
                "configured to find builds of its own, or somebody has changed the file. Where you trust the new file, "
                f"take it into the lock: steptime env lock {self.spec.name}"
            )
        lines = [
            f"the environment of {self.spec.name} cannot be made: {what}",
            *(f"  | {line}" for line in said),
            f"log: {self.log}",
            f"try again: steptime env create {self.spec.name}",
        ]
        places = (self.folder.parent, Path(tempfile.gettempdir()))
        left = {place: shutil.disk_usage(place).free for place in places}
        # Some installers only say that they failed; others have freed space again by now.
        if min(left.values()) < _FULL_BYTES or any("No space left on device" in line for line in said):
            space = " and ".join(f"{format_bytes(free)} in {place}" for place, free in left.items())
            lines.append(f"A disk was full; now {space} is left: free some, or set STEPTIME_CACHE or TMPDIR.")
        return "\n".join(lines)


def log_of(folder: Path) -> Path:
    """Return the log of the environment at ``folder``, in the same folder as the environment."""
    return folder.parent / f"{folder.name}.log"


def size_of(folder: Path, *, own: bool = False) -> int:
    """Return the bytes of all files below ``folder``; files that vanish meanwhile count nothing.

    Args:
        folder: which need not exist.
        own: leave out files that have another name too, as those that uv keeps in its cache: removal frees none.
    """
    total = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except OSError:
            continue
        if not own or stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
            total += status.st_size
    return total


_POLL_S = 0.1
_GRACE_S = 10.0
"""Installers end within it after a maker that was killed; a lease, unlike the kernel's lock, does not see them."""


@contextmanager
def only_maker(folder: Path, waiting: Callable[[], None], cancelled: threading.Event) -> Iterator[int]:
    """Hold the lock of the environment at ``folder`` and yield it; wait while another process or thread holds it.

    Args:
        folder: the environment's, which need not exist. The lock is a file next to it, since the folder comes and goes.
        waiting: called once if the lock is not free.
        cancelled: ends the waiting.

    Raises EnvironmentFailure when cancelled, and when another host has taken the lock meanwhile because this process
    gave no heartbeat for minutes, or when others may write to the cache; OSError when the lock file cannot be
    written.
    """
    if refusal := foreign_writers(folder):
        raise EnvironmentFailure(refusal)
    descriptor, lock = _open(folder)
    try:
        reported = False
        while not lock.take():
            if not reported:
                waiting()
                reported = True
            if cancelled.wait(_POLL_S):
                message = f"stopped while waiting for another process that makes {folder}"
                raise EnvironmentFailure(message)
        yield descriptor
        if lock.lost:
            message = (
                f"another process makes {folder} since this one gave no heartbeat for {format_seconds(SILENCE_S)}; "
                "wait for it, then give the same command again"
            )
            raise EnvironmentFailure(message)
    finally:
        lock.release()


@contextmanager
def idle(folder: Path, patience_s: float = 1.0) -> Iterator[None]:
    """Hold the lock of an environment that is not being made.

    Raises EnvironmentFailure when somebody still is after ``patience_s`` seconds.
    """
    _, lock = _open(folder)
    try:
        give_up = time.monotonic() + patience_s
        while not lock.take():
            if time.monotonic() > give_up:
                message = f"another process is making {folder} right now; end it, or wait until it is ready"
                raise EnvironmentFailure(message)
            time.sleep(_POLL_S)
        yield
    finally:
        lock.release()


def _open(folder: Path) -> tuple[int, FileLock]:
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = locks / folder.name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return descriptor, FileLock(path, descriptor, grace_s=_GRACE_S)
