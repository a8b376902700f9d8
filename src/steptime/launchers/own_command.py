"""A user's own command, run in the foreground as a shell would: its streams, its signals and its end are its own."""

import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.errors import LaunchError
from steptime.umask import callers_umask

_PASSED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_BY_KERNEL = 0x80
"""``si_code`` of a signal that a terminal sent, and then to the command as well (sigaction(2), SI_KERNEL)."""
_OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""That Python ignores for itself, and no program that it starts."""
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OF_SHELLS = ("cd", "source", ".", "export", "alias", "module", "ulimit", "set", "exec", "eval", "if", "for", "while")
_NOT_FOUND, _NOT_STARTED = 127, 126
"""Exit codes of shells."""


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended; times are seconds of the monotonic clock."""

    code: int
    """Its exit code, or minus the number of the signal that ended it."""
    began_s: float
    ended_s: float
    signal: int | None = None
    """That somebody sent meanwhile, the first one."""

    @property
    def exit_code(self) -> int:
        """The code that a shell shows."""
        return self.code if self.code >= 0 else 128 - self.code


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    beat: Callable[[int], None],
    every_s: float,
    output: int | None = None,
) -> CommandEnd:
    """Run a command until it ends, and pass on what signals somebody sends meanwhile.

    A signal of the terminal (Ctrl-C) reaches the command without help and is not passed on again.

    Args:
        words: the program and its arguments, found as a shell finds it.
        environment: of the command.
        beat: called with the command's process id while it runs.
        every_s: seconds between two calls of ``beat``, at least.
        output: the open file that takes what the command writes to both of its streams; None leaves them as they are.

    Raises LaunchError, with the exit code that a shell would have, where the program cannot be started.
    """
    heard = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        began_s = time.monotonic()
        process = _started(words, environment, before, output)
        status = asked = None
        while status is None:
            came = signal.sigtimedwait(heard, every_s)
            if asked is None and came is not None and came.si_signo in _PASSED_ON:
                asked = came.si_signo
            status = _ended(process)
            if status is not None:
                break
            if came is None:
                beat(process)
            elif came.si_signo in _PASSED_ON and came.si_code != _BY_KERNEL:
                os.kill(process, came.si_signo)
        ended_s = time.monotonic()
        while signal.sigtimedwait(heard, 0.0):  # what the command was asked, it has obeyed
            pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return CommandEnd(os.waitstatus_to_exitcode(status), began_s, ended_s, asked)


def become_command(words: Sequence[str]) -> None:
    """Become the command, as the shell would have started it; raises LaunchError where it cannot be started."""
    for number in _OF_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        with callers_umask():
            os.execvp(words[0], list(words))  # noqa: S606 - the user's own command
    except OSError as error:
        raise _refused(words[0], error.strerror or str(error), _NOT_STARTED) from error


def require_program(name: str) -> None:
    """Raise LaunchError, with the exit code that a shell would have, where a program of this name is missing."""
    if shutil.which(name) is None:
        raise _refused(name, _why_missing(name), _NOT_FOUND)


def _why_missing(name: str) -> str:
    """Return why a word is not a program, by what it is instead, with the next step."""
    place, quoted = Path(name), shlex.quote(name)
    answers = (
        (
            _SETTING.match(name) and re.search(r"\s", name.strip()),
            f"it sets a variable and is a whole command in one word; begin with a shell: bash -c {quoted}",
        ),
        (_SETTING.match(name), f"it sets a variable; write it before steptime, or begin with env: env {quoted} ..."),
        (
            re.search(r"\s", name.strip()),
            f"it is a whole command in one word; leave the quotes out, or begin with a shell: bash -c {quoted}",
        ),
        (place.suffix == ".py" and place.is_file(), f"it is a script; begin with its interpreter, as python {quoted}"),
        (
            place.is_file(),
            f"it is a file that may not be run, or is not on the PATH; begin with what runs it, as bash {quoted}",
        ),
        (place.is_dir(), "it is a folder; begin with a program, as python train.py"),
        (name in _OF_SHELLS, f"it is a word of the shell; begin with one: bash -c '{name} ... && python train.py'"),
        (
            name.startswith("-"),
            "it is an option; put steptime's options before --, and a program after it",
        ),
        (
            place.name == name,
            f"no such program on the PATH; activate its environment, or write as .venv/bin/{name}",
        ),
    )
    return next((answer for is_that, answer in answers if is_that), "no such program")


def _started(words: Sequence[str], environment: Mapping[str, str], mask: set[int], output: int | None) -> int:
    streams = [(os.POSIX_SPAWN_DUP2, output, stream) for stream in (1, 2) if output is not None]
    try:
        with callers_umask():
            return os.posix_spawnp(
                words[0], list(words), dict(environment), file_actions=streams, setsigmask=mask, setsigdef=_OF_PYTHON
            )
    except OSError as error:
        raise _refused(words[0], error.strerror or str(error), _NOT_STARTED) from error


def _refused(name: str, cause: str, exit_code: int) -> LaunchError:
    refused = LaunchError(f"{name} cannot be started: {cause}")
    refused.exit_code = exit_code
    return refused


def _ended(process: int) -> int | None:
    found, status = os.waitpid(process, os.WNOHANG)
    return status if found else None
