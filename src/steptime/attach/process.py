"""The one recorder of this process: made when a library is first hooked, anew in forked children, closed at the end."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from typing import Any

from . import garbage, line_sampler, memory, patches
from .record_file import ProcessRecord, now
from .recorder import Recorder

# In place of a library: what a process did that trained no step.
WHY = "without-step"

_recorder: Recorder | None = None
# Whether a block of a script has ended, behind which nothing is recorded.
_paused = False
NO_THREAD = -1


def recorder(entry: str = "sitecustomize") -> Recorder:
    """Return the recorder; the first call makes it, and notes through which ``entry`` the hook came."""
    global _recorder  # noqa: PLW0603 - a process has one recorder
    if _recorder is None:
        _recorder = Recorder(ProcessRecord(os.environ["STEPTIME_ATTACH"], entry))
        _recorder.sampler = line_sampler.LineSampler(_recorder, os.environ.get("STEPTIME_ATTACH_LINES", "auto"))
        patches.reports.append(report)
        patches.clean_tracebacks()
        garbage.watch(_recorder)
        memory.watch(_recorder)
        atexit.register(_end)
        os.register_at_fork(after_in_child=_forked)
        own = sys.modules.get("multiprocessing.process")
        if own is not None and own.parent_process() is not None:
            _end_with_multiprocessing()
    return _recorder


def begin_block(folder: str) -> None:
    """Record from here on in ``folder``, in a record of its own if there was a block before."""
    global _paused  # noqa: PLW0603 - a process has one recorder
    _paused = False
    if _recorder is not None:
        world = _recorder.world
        _recorder.file.folder = folder
        _recorder.file.begin = now()
        _recorder.file.begin_again()
        _recorder.sampler.mode = os.environ.get("STEPTIME_ATTACH_LINES", "auto")
        _recorder.begin_again()
        if world is not None:
            _recorder.rank(*world)


def end_block() -> int:
    """End the record, record nothing more, and return its steps."""
    global _paused  # noqa: PLW0603 - as above
    _paused = True
    if _recorder is None:
        return 0
    _end()
    _recorder.begin, _recorder.thread = 0, NO_THREAD  # no thread is that of a training that has begun
    _recorder.file.closed = True
    return _recorder.number


def report(hook: str, error: BaseException) -> None:
    """Write the line about a hook that failed and was removed."""
    if _recorder is not None:
        _recorder.faulted()
        _recorder.file.write(
            {
                "kind": "fault",
                "hook": hook,
                "error": repr(error)[:500],
                "place": patches.place_of(error),
                "step": _recorder.number,
            }
        )


def note(text: str) -> None:
    """Write what cannot be seen, for the user to read."""
    recorder().file.write({"kind": "note", "text": text}, opens=False)


def unseen(reason: str, *phases: str) -> None:
    """Write which phases of a step cannot be told, and why; what is recorded under their names is asking for them."""
    recorder().file.write({"kind": "unseen", "phases": list(phases), "reason": reason}, opens=False)


def seen(library: str) -> None:
    """Note that ``library`` was hooked in this process, whether or not it will train."""
    made = recorder()
    _append(f"{os.getpid()} {library} {made.file.entry}\n")


def _append(line: str) -> None:
    made = recorder()
    try:
        os.makedirs(made.file.folder, exist_ok=True)
        path = os.path.join(made.file.folder, f"seen-{socket.gethostname()}.txt")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError:
        made.file.lost += 1


def _end() -> None:
    if _recorder is not None:
        try:
            _recorder.end()
            if _recorder.number == 0 and _recorder.sights:
                counts = " ".join(f"{name}={count}" for name, count in _recorder.sights.items())
                _append(f"{os.getpid()} {WHY} {counts}\n")
        except Exception as error:
            report("the end of the process", error)


def _end_with_multiprocessing() -> None:
    """Have the record ended in a forked child of multiprocessing, which ends by os._exit and without atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _end, exitpriority=1000)


def _forked() -> None:
    made: Any = _recorder
    if _paused:
        return
    try:
        made.file.forked()
        made.begin_again()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(made, lambda _: _end_with_multiprocessing())
    except Exception as error:
        report("the fork of a process", error)
