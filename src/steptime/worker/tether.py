"""The tethers of processes: the kernel kills one when its parent dies, and a worker ends when a loader's helper dies.

Run as a program (``python tether.py mpiexec …``), it tethers itself and then becomes the other program: the tether
outlives ``exec``, which lets the runner tether launchers that have no such option.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.05
"""So often helpers are looked for that have been started since; one of a pool is forgotten 0.1 s after its death."""
_GRACE_S = 1.0
"""So long a framework may take to report itself that a helper has died."""
_TAIL_BYTES = 4096
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - nothing is written there


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; does nothing where the kernel cannot (not Linux)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    # The parent may have died before the request was made; the kernel would then never kill this process.
    expected = os.environ.get("STEPTIME_PARENT")
    if expected and os.getppid() == 1 and int(expected) != 1 and not _in_other_processes():
        os.kill(os.getpid(), signal.SIGKILL)


def _in_other_processes() -> bool:
    """Whether this process has another PID namespace than the runner, as in a container: 1 is its first process."""
    fields = os.environ.get("STEPTIME_RUNNER", "").split(":")
    try:
        return fields[2] not in ("0", str(os.stat("/proc/self/ns/pid").st_ino))
    except (IndexError, OSError):
        return False


class HelperWatch(object):
    """Watches the processes that this one has started with multiprocessing, as helpers of a loader, in a thread.

    A framework whose helper was killed may wait for its batches for ever. A context manager: within it, ``died`` is
    called, in the thread, with a sentence about the first helper that ends otherwise than well, unless the block is
    left within a second.
    """

    def __init__(self, died: Callable[[str], None], needed: bool) -> None:
        """Watch unless ``needed`` is false: a worker without helpers has no further thread."""
        self._died = died
        self._stopped = threading.Event()
        self._task = "none"
        """The kernel's number of the thread."""
        self._thread = threading.Thread(target=self._watch, name="helper-watch", daemon=True) if needed else None

    def __enter__(self) -> "HelperWatch":  # noqa: PYI034 - Python 3.6 has no Self
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the watch: helpers may be ended from now on."""
        self._stopped.set()
        if self._thread:
            self._thread.join()
            # Python is done with a thread before the kernel is, whose threads are counted next.
            until = time.monotonic() + _GRACE_S
            while os.path.exists("/proc/self/task/" + self._task) and time.monotonic() < until:
                time.sleep(0.001)

    def _watch(self) -> None:
        with contextlib.suppress(OSError):  # not Linux
            self._task = os.path.basename(os.readlink("/proc/thread-self"))
        seen = {}  # type: Dict[int, Any]
        while not self._stopped.is_set():
            seen.update((id(each), each) for each in _started_processes())
            for key in _ended(seen, _LOOK_S):
                helper = seen.pop(key)
                if self._stopped.wait(_GRACE_S):
                    return
                code = helper.exitcode
                if code:
                    self._died("%s (process %d) of the loader %s" % (helper.name, helper.pid, _how_it_ended(code)))
                    return


def _started_processes() -> List[Any]:
    """Return the processes that multiprocessing has started here, if it was imported, whatever starts them."""
    module = sys.modules.get("multiprocessing.process")
    return list(getattr(module, "_children", ()))


def _ended(processes: Dict[int, Any], limit_s: float) -> List[int]:
    """Wait for a moment, or until one of ``processes`` has ended; return the keys of those that have."""
    sentinels = {_sentinel(process): key for key, process in processes.items()}
    sentinels.pop(None, None)
    if not sentinels:
        time.sleep(limit_s)
        return []
    from multiprocessing.connection import wait

    return [sentinels[each] for each in wait(list(sentinels), limit_s)]


def _sentinel(process: Any) -> Any:
    """Return what becomes ready when a process has ended; None if its owner has closed it."""
    try:
        return process.sentinel
    except ValueError:
        return None


def _how_it_ended(code: int) -> str:
    if code > 0:
        return "ended with exit code %d" % code
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = "signal %d" % -code
    if name == "SIGBUS":
        try:
            found = os.statvfs(_SHARED_MEMORY)
        except OSError:
            return "was ended by SIGBUS"
        size, free = (count * found.f_frsize / 2.0**20 for count in (found.f_blocks, found.f_bavail))
        return "was ended by SIGBUS; %s holds %.0f MiB, of which %.0f are free (docker run --shm-size)" % (
            _SHARED_MEMORY,
            size,
            free,
        )
    return "was ended by %s" % name


def last_line(path: str) -> str:
    """Return the last line of a file that is not blank, without blanks around it; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted
