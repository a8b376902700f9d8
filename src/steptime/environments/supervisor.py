"""``python supervisor.py COMMAND …``: runs an installer, and ends it with everything that it started.

Installers start programs of their own (``ensurepip``, compilers), which outlive an installer that is killed. The
supervisor adopts them (Linux's child subreaper), and kills all of them when the command has ended or when its own
standard input ends, which happens when the process that asked dies, however it dies. It exits last: the lock of the
environment, which it inherits, is free only when nothing writes to the environment any more. The installer's temporary
folder goes with it. A supervisor that is itself killed takes the command with it, and who asked ends what is left.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import psutil

_SUBREAPER = 36
_PARENT_DEATH = 1
_POLL_S = 0.01
_NOT_STARTED = 127
"""The exit code of shells for a command that cannot be run."""


def run(command: list[str]) -> int:
    """Run ``command`` to its end, or to that of the standard input; return its exit code, 128 and more for a signal."""
    kernel, own = ctypes.CDLL(None), os.getpid()
    kernel.prctl(_SUBREAPER, 1, 0, 0, 0)
    temporary = _temporary_folder()

    def tether() -> None:
        """Have the kernel kill the command when the supervisor is killed, which may have happened just now."""
        kernel.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != own:
            os._exit(_NOT_STARTED)

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **({"TMPDIR": temporary} if temporary else {})},
            preexec_fn=tether,  # noqa: PLW1509 - no thread runs yet
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_STARTED
    else:
        unwanted = threading.Event()
        threading.Thread(target=_await_end_of_input, args=[unwanted], daemon=True).start()
        return _wait(child.pid, unwanted)
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _temporary_folder() -> str | None:
    try:
        return tempfile.mkdtemp(prefix="steptime-install-")
    except OSError:  # the installer reports itself what it lacks
        return None


def _await_end_of_input(ended: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    ended.set()


def _wait(main: int, unwanted: threading.Event) -> int:
    """Wait until no child is left; kill the others once ``main`` has ended or is not wanted any more."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return _NOT_STARTED if code is None else code
        if pid == main:
            found = os.waitstatus_to_exitcode(status)
            code = found if found >= 0 else 128 - found
        if code is not None or unwanted.is_set():
            _kill_descendants()
        if not pid:
            time.sleep(_POLL_S)


def _kill_descendants() -> None:
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            each.kill()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
