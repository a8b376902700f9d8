"""One maker per environment: a lock of the kernel's, which a killed process cannot leave behind."""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steptime.errors import EnvironmentFailure

_POLL_S = 0.1


@contextmanager
def only_maker(folder: Path, waiting: Callable[[], None], cancelled: threading.Event) -> Iterator[None]:
    """Hold the lock of the environment at ``folder``; wait while another process or thread holds it.

    Args:
        folder: the environment's, which need not exist. The lock is a file beside it, since the folder comes and goes.
        waiting: called once if the lock is not free.
        cancelled: ends the waiting.

    Raises EnvironmentFailure when cancelled, OSError when the lock file cannot be written.
    """
    descriptor = _open(folder)
    try:
        told = False
        while not _try(descriptor):
            if not told:
                waiting()
                told = True
            if cancelled.wait(_POLL_S):
                message = f"stopped while waiting for another process that makes {folder}"
                raise EnvironmentFailure(message)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def idle(folder: Path, patience_s: float = 1.0) -> Iterator[None]:
    """Hold the lock of an environment that nobody is making.

    Raises EnvironmentFailure when somebody still is after ``patience_s`` seconds.
    """
    descriptor = _open(folder)
    try:
        give_up = time.monotonic() + patience_s
        while not _try(descriptor):
            if time.monotonic() > give_up:
                message = f"another process is making {folder} right now; end it, or wait until it is ready"
                raise EnvironmentFailure(message)
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    locks = folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return os.open(locks / folder.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True
