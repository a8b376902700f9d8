"""A program that takes the lock of a file, to be killed and raced by tests; it ends when its input does.

``hold PATH SILENCE_S`` takes it and says ``held``; ``try PATH SILENCE_S`` waits for a line, tries once and says
``True`` or ``False``; ``count PATH SILENCE_S`` adds one fifty times to the number in ``PATH.count``, under the lock;
``environment PATH`` holds the lock of the environment at ``PATH``, ``results PATH`` that of the results folder.
"""

import os
import sys
import threading
import time
from pathlib import Path

from steptime.environments.build import only_maker
from steptime.file_lock import FileLock
from steptime.results.lock import FolderLock


def _opened(path: Path, silence_s: str) -> FileLock:
    return FileLock(path, os.open(path, os.O_RDWR | os.O_CREAT), silence_s=float(silence_s))


def _said(word: object) -> None:
    print(word, flush=True)  # noqa: T201 - tests read it
    sys.stdin.read()


def _count(path: Path, silence_s: str) -> None:
    counter = path.with_suffix(".count")
    for _ in range(50):
        lock = _opened(path, silence_s)
        while not lock.take():
            time.sleep(0.001)
        number = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(number + 1))
        lock.release()


def main(verb: str, place: str, silence_s: str = "600") -> None:
    """Do what the first argument says."""
    path = Path(place)
    if verb == "environment":
        with only_maker(path, lambda: print("waiting", flush=True), threading.Event()):  # noqa: T201 - tests read it
            _said("held")
    elif verb == "results":
        with FolderLock(path / "run.lock"):
            _said("held")
    elif verb == "count":
        _count(path, silence_s)
    elif verb == "hold":
        lock = _opened(path, silence_s)
        _said("held" if lock.take() else "busy")
    else:
        lock = _opened(path, silence_s)
        sys.stdin.readline()
        _said(lock.take())


if __name__ == "__main__":
    main(*sys.argv[1:])
