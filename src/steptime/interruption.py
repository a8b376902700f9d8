"""Interruption: Ctrl-C, SIGTERM and SIGHUP end a run in the same way, and none of them cuts a removal short.

A dropped connection sends SIGHUP, and a scheduler or ``kill`` sends SIGTERM; Python would end at once on both, and
leave namespaces, control groups and installers behind. While ``obeyed()`` is in force, the first of the three signals
raises Interrupted in the main thread, at the next moment that is not ``shielded()``, and all later ones are ignored:
what an interrupted run removes, it removes to the end.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

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
    """The signals of the process: whether one has come, and whether it has to wait."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.raised = False
        self.shields = 0

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal; raises Interrupted for the first one unless a shield is up."""
        self.first = self.first or number
        self.deliver()

    def deliver(self) -> None:
        """Raise Interrupted for a signal that has come and was not yet delivered."""
        if self.first is not None and not self.raised and not self.shields:
            self.raised = True
            raise Interrupted(self.first)

    def deliver_again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Take what was raised where nothing can be raised, such as the end of an object; Interrupted is sent anew."""
        if isinstance(unraisable.exc_value, Interrupted):
            self.raised = False
            # A moment later: here, too, nothing can be raised.
            threading.Timer(_AGAIN_S, os.kill, [os.getpid(), unraisable.exc_value.number]).start()
        else:
            sys.__unraisablehook__(unraisable)


_RECEIVER = _Receiver()


def receive(number: int, frame: FrameType | None) -> None:
    """Take another signal than the three as one that asks this process to end: the handler for an alarm."""
    _RECEIVER.receive(number, frame)


def interruption() -> Interrupted | None:
    """Return the signal that was raised since ``obeyed()`` began, where a library has made another error of it."""
    return Interrupted(_RECEIVER.first) if _RECEIVER.raised and _RECEIVER.first is not None else None


@contextmanager
def unmasked() -> Iterator[None]:
    """Raise Interrupted itself where a library has made another error of it within the block.

    pydantic does (2.14): what is raised while one of its models calls back becomes a ``PydanticSerializationError``,
    of whatever kind it was.
    """
    before = _RECEIVER.raised
    try:
        yield
    except Exception as error:
        if not before and (hidden := interruption()):
            raise hidden from error
        raise


@contextmanager
def obeyed() -> Iterator[None]:
    """Let the three signals raise Interrupted within the block, which the main thread must enter.

    A signal that is ignored stays so: ``nohup`` and the background jobs of shells mean it.
    """
    _RECEIVER.first, _RECEIVER.raised = None, False
    hook = sys.unraisablehook
    sys.unraisablehook = _RECEIVER.deliver_again
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _RECEIVER.receive)
    try:
        yield
    finally:
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
