"""Doing something within a host's network, from this process."""

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from steptime.errors import LaunchError

T = TypeVar("T")
_NEW_NETWORK = 0x40000000


def within(namespace: Path, act: Callable[[], T]) -> T:
    """Return what ``act`` returns in a thread that is in the network ``namespace``.

    A thread changes its network alone and is never used again, so that nobody else of this process notices.

    Raises LaunchError when the namespace cannot be entered, or when ``act`` raises OSError.
    """
    results: list[T] = []
    failures: list[OSError] = []

    def run() -> None:
        try:
            with namespace.open("rb") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(namespace))  # noqa: TRY301 - one way out
            results.append(act())
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        message = f"within {namespace.name}: {failures[0]}"
        raise LaunchError(message) from failures[0]
    return results[0]
