"""Which processes of a test still live, and waiting until they do or do not."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

_TURN_S = 0.02


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and that nobody has awaited does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that run in a folder or below it, whatever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def living_children() -> list[psutil.Process]:
    """Return the processes that this one has started and that have not ended."""
    return [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Wait until ``condition`` holds, and say whether it did within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (holds := bool(condition())) and time.monotonic() < deadline:
        time.sleep(_TURN_S)
    return holds


def has_ended(pid: int, seconds: float = 10.0) -> bool:
    """Say whether a process ends within so many seconds; whoever is its parent may not have awaited it."""
    return wait_until(lambda: not is_alive(pid), seconds)


def all_have_left(folder: Path, seconds: float = 10.0) -> bool:
    """Say whether within so many seconds no process runs in a folder any more."""
    return wait_until(lambda: not living_in(folder), seconds)
