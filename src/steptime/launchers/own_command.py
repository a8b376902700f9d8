"""A user's own command, run in the foreground as a shell would: its streams, its signals and its end are its own."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from steptime.errors import LaunchError
from steptime.interruption import raise_waiting
from steptime.launchers.group_witness import GroupWitness
from steptime.umask import callers_umask

_ASKING = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PASSED_ON = (*_ASKING, signal.SIGTSTP)
_STOPPING = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
"""With which a terminal stops a job; a debugger's SIGSTOP of the command alone is not for this process."""
_TOGETHER_S = 0.05
"""Within which a signal to a group, or to each process of a job, has come to all of them."""
_OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""That Python ignores for itself, and no program that it starts."""
NOT_FOUND, _NOT_STARTED = 127, 126
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


class _Heard:
    """The signals that have come to this process, whichever of its threads the kernel chose for them."""

    def __init__(self, wakes: int) -> None:
        self.came: list[int] = []
        self._wakes = wakes

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        if number != signal.SIGCHLD:
            self.came.append(number)

    def wait(self, seconds: float) -> None:
        """Return once a signal has come, or after so many seconds."""
        if not self.came and select.select([self._wakes], [], [], max(seconds, 0.0))[0]:
            with suppress(BlockingIOError):
                os.read(self._wakes, 4096)

    def first(self) -> int | None:
        """Take away the first one; None if none has come."""
        return self.came.pop(0) if self.came else None

    def forget(self, number: int) -> None:
        """Take away all that are the same."""
        while number in self.came:  # the list stays the same one, to which others may be added meanwhile
            self.came.remove(number)


@contextmanager
def _heard() -> Iterator[_Heard]:
    """Hear what a command is to be passed, and its end; the main thread must enter. What is ignored stays so."""
    wakes, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signals = _Heard(wakes)
    before = {number: signal.getsignal(number) for number in (*_PASSED_ON, signal.SIGCHLD)}
    descriptor = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, signals.receive)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        os.close(wakes)
        os.close(woken)


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    beat: Callable[[int], None],
    every_s: float,
    output: int | None = None,
) -> CommandEnd:
    """Run a command until it ends, and pass on what signals somebody sends meanwhile; stop while it is stopped.

    A signal to the whole group (Ctrl-C) reaches the command without help and is not passed on again.

    Args:
        words: the program and its arguments, found as a shell finds it.
        environment: of the command.
        beat: called with the command's process id while it runs.
        every_s: seconds between two calls of ``beat``, at least.
        output: the open file that takes what the command writes to both of its streams; None leaves them as they are.

    Raises LaunchError, with the exit code that a shell would have, where the program cannot be started, and Interrupted
    for a signal that came before it was.
    """
    with _heard() as signals, closing(GroupWitness()) as witness:
        raise_waiting()
        began_s = time.monotonic()
        process = _started(words, environment, output)
        status = asked = None
        beat_at = began_s + every_s
        while status is None:
            signals.wait(beat_at - time.monotonic())
            if number := signals.first():
                asked = asked or (number if number in _ASKING else None)
                _pass_on(number, process, signals, witness)
            status = _ended(process, witness)
            if status is None and time.monotonic() >= beat_at:
                beat(process)
                beat_at = time.monotonic() + every_s
        ended_s = time.monotonic()
    asked = asked or next((number for number in signals.came if number in _ASKING), None)
    return CommandEnd(os.waitstatus_to_exitcode(status), began_s, ended_s, asked)


def become_command(words: Sequence[str]) -> None:
    """Become the command, as the shell would have started it; raises LaunchError where it cannot be started."""
    for number in _OF_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        with callers_umask():
            os.execvp(words[0], list(words))  # noqa: S606 - the user's own command
    except OSError as error:
        raise not_started(words[0], error.strerror or str(error), _NOT_STARTED) from error


def _started(words: Sequence[str], environment: Mapping[str, str], output: int | None) -> int:
    streams = [(os.POSIX_SPAWN_DUP2, output, stream) for stream in (1, 2) if output is not None]
    try:
        with callers_umask():
            return os.posix_spawnp(words[0], list(words), dict(environment), file_actions=streams, setsigdef=_OF_PYTHON)
    except OSError as error:
        raise not_started(words[0], error.strerror or str(error), _NOT_STARTED) from error


def not_started(name: str, cause: str, exit_code: int) -> LaunchError:
    """Return the error of a program that cannot be started, with the exit code that a shell would have."""
    refused = LaunchError(f"{name} cannot be started: {cause}")
    refused.exit_code = exit_code
    return refused


def _pass_on(number: int, process: int, signals: _Heard, witness: GroupWitness) -> None:
    """Send a signal to the command, which lives or has not been awaited, unless it has got it as well."""
    time.sleep(_TOGETHER_S)
    signals.forget(number)  # the same one: ``timeout`` sends it to its command and to the group
    if witness.has_got(number):
        witness.renew()
    else:
        os.kill(process, number)


def _ended(process: int, witness: GroupWitness) -> int | None:
    """Return the status of a command that has ended; while a terminal has it stopped, this process stops too."""
    found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
    if not found:
        return None
    if not os.WIFSTOPPED(status):
        return status
    if os.WSTOPSIG(status) in _STOPPING:
        witness.renew()
        os.kill(os.getpid(), signal.SIGSTOP)
        if not any(map(witness.has_got, (signal.SIGCONT, signal.SIGTSTP))):  # a later stop takes a SIGCONT away
            os.kill(process, signal.SIGCONT)
    return None
