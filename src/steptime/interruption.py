"""Interruption: Ctrl-C and the signals of schedulers end a run in the same way, and none cuts a removal short.

A dropped connection sends SIGHUP, ``kill`` SIGTERM, and a scheduler that or SIGUSR1 or SIGUSR2; Python would end at
once on each, and leave namespaces, control groups and installers behind. While ``obeyed()`` is in force, the first of
these signals raises Interrupted in the main thread, at the next moment that is not ``shielded()``, and all later ones
are ignored: what an interrupted run removes, it removes to the end.
"""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_AGAIN_S = 0.01
_UNFINISHED = 4
"""The exit code of a run that is not done and goes on later, that of ``errors.Unfinished`` as well."""


def signal_name(number: int) -> str:
    """Return ``SIGTERM`` for 15, ``SIGRTMIN+5`` for a real-time signal and ``signal 32`` for one without a name."""
    if number in set(signal.Signals):
        return signal.Signals(number).name
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return f"signal {number}"


class Interrupted(BaseException):
    """A signal asks this process to end; its notes say how to go on later.

    It is not a KeyboardInterrupt, which the library of the command line would turn into exit code 130 and nothing else.
    """

    def __init__(self, number: int) -> None:
        super().__init__("the end of its time" if number == signal.SIGALRM else signal_name(number))
        self.number = number

    @property
    def exit_code(self) -> int:
        """The code that shells give to a process that the signal ended; of an alarm, that of a run that is not done."""
        return _UNFINISHED if self.number == signal.SIGALRM else 128 + self.number


class _Receiver:
    """The signals of the process: whether one has come, whether it has to wait, and whether what it raised is lost.

    Compilers and extension modules drop errors that are raised while they call back, and so do the ends of objects.
    An interruption that nothing holds any more before ``obeyed()`` is over has been dropped, and is sent anew.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.shields = 0
        self.is_over = False
        self._is_raised = False
        self._on_its_way: weakref.ref[Interrupted] | None = None
        self._again = threading.Timer(0.0, lambda: None)

    def begin(self) -> None:
        """Know of no signal that came before."""
        self.first, self._is_raised, self.is_over = None, False, False

    def end(self) -> None:
        """Send nothing anew from now on, and wait for what is being sent."""
        self._is_raised, self._on_its_way = True, None
        if self._again.is_alive():
            self._again.join()

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal; raises Interrupted for the first one unless a shield is up."""
        self.first = self.first or number
        self.deliver()

    def deliver(self, shields: int = 0) -> None:
        """Raise Interrupted for a signal that came, unless one is on its way or more shields than so many are up."""
        if self.first is not None and not self._is_raised and self.shields <= shields:
            raise self.interruption(self.first)

    def interruption(self, number: int) -> Interrupted:
        """Return an interruption to be raised, which is sent anew if it is dropped."""
        interrupted = Interrupted(number)
        self._is_raised, self._on_its_way = True, weakref.ref(interrupted, self._send_again)
        return interrupted

    def _send_again(self, dropped: "weakref.ref[Interrupted]") -> None:
        if dropped is self._on_its_way:
            self._is_raised, self._on_its_way = False, None
            received = [number for number in _SIGNALS if signal.getsignal(number) == self.receive]
            if received:
                # A moment later: where one error was dropped, another would be too. Any of them will do, since
                # the first signal is what counts; an alarm is not for this module to send.
                self._again = threading.Timer(_AGAIN_S, os.kill, [os.getpid(), received[0]])
                self._again.daemon = True
                self._again.start()


_RECEIVER = _Receiver()


def _drop_quietly(unraisable: "sys.UnraisableHookArgs") -> None:
    if not isinstance(unraisable.exc_value, Interrupted):
        sys.__unraisablehook__(unraisable)


def receive(number: int, frame: FrameType | None) -> None:
    """Take another signal than these as one that asks this process to end: the handler for an alarm."""
    _RECEIVER.receive(number, frame)


def interruption() -> Interrupted | None:
    """Return the signal that came since ``obeyed()`` began, where a library has made another error of it."""
    return None if _RECEIVER.first is None else Interrupted(_RECEIVER.first)


@contextmanager
def unmasked() -> Iterator[None]:
    """Raise Interrupted itself where a library has made another error of it within the block.

    pydantic does (2.14): what is raised while one of its models calls back becomes a ``PydanticSerializationError``,
    of whatever kind it was.
    """
    before = _RECEIVER.first
    try:
        yield
    except Exception as error:
        if before is None and _RECEIVER.first is not None:
            raise _RECEIVER.interruption(_RECEIVER.first) from error
        raise


@contextmanager
def obeyed() -> Iterator[None]:
    """Let the signals raise Interrupted within the block, which the main thread must enter.

    A signal that is ignored stays so: ``nohup`` and the background jobs of shells mean it.
    """
    _RECEIVER.begin()
    hook = sys.unraisablehook
    sys.unraisablehook = _drop_quietly
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _RECEIVER.receive)
    try:
        yield
    finally:
        _RECEIVER.end()
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


@contextmanager
def shielded() -> Iterator[None]:
    """Keep a signal waiting until the block is over: for removals, which must not stop half way.

    Other threads than the main one get no signals, so that nothing has to be kept from them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _RECEIVER.shields += 1
    try:
        yield
    finally:
        _RECEIVER.shields -= 1
        _RECEIVER.deliver()


def raise_waiting() -> None:
    """Raise Interrupted for a signal that waits for the end of a shield, where nothing is begun yet to be cut short."""
    if threading.current_thread() is threading.main_thread():
        _RECEIVER.deliver(_RECEIVER.shields)


def end_is_decided() -> None:
    """Obey no signal any more until this process ends, or ``obeyed()`` begins anew: what is to be done is done."""
    _RECEIVER.end()
    _RECEIVER.is_over = True


def keep_end() -> None:
    """Let no signal change the end of this process where ``end_is_decided()``."""
    if _RECEIVER.is_over:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
