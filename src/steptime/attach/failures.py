"""The exception that ended this process, for the answer: a line in ``failed-HOST.txt``."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time

LONGEST = 500
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'^ *File "([^"<]+)", line (\d+), in (\S+)', re.MULTILINE)
# As torchrun lists processes that left no exception: those that a signal ended, and those that left with a code.
_ENDED = re.compile(
    r"Root Cause.*?^ +rank +: (\d+).*?^ +exitcode +: (-?\d+).*?"
    r"^ +traceback +: (?:(Signal \d+ \(\w+\)) received|To enable)",
    re.MULTILINE | re.DOTALL,
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def write_failure() -> None:
    """Write the exception that the interpreter has printed, if it has; called when the process ends."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return
    try:
        line = {
            "pid": os.getpid(),
            "at_ns": time.monotonic_ns(),
            "type": type(error).__name__,
            "error": line_of_cause(error)[:LONGEST],
            "place": place_of(error),
        }
        path = os.path.join(os.environ["STEPTIME_ATTACH"], f"failed-{socket.gethostname()}.txt")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)
    except Exception:  # the interpreter has told the user already
        return


def line_of_cause(error: BaseException) -> str:
    """Return the line of ``error`` that names its cause: the first, or the one behind a traceback in its message.

    Loaders, ``torch.multiprocessing.spawn`` and ``torch.distributed.rpc`` raise that of another process so; what else
    has several lines ends in hints.
    """
    name, lines = type(error).__name__, [_COLOUR.sub("", line).rstrip() for line in str(error).splitlines()]
    if ended := _ENDED.search("\n".join(lines)):
        how = ended[3] or f"exit code {ended[2]}"
        return f"{name}: rank {ended[1]} ended first, with {how}"
    causes = _causes(lines)
    if causes:
        return causes[-1]
    text = [line.strip() for line in lines if any(map(str.isalnum, line))]
    return f"{name}: {text[0]}" if text else name


def _causes(lines: list[str]) -> list[str]:
    """Return the first line behind the frames of each traceback in ``lines``."""
    causes, inside = [], False
    for line in lines:
        if line.startswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace():
            causes.append(line)
            inside = False
    return causes


def place_of(error: BaseException) -> str:
    """Return "FILE:LINE FUNCTION" of the innermost line that is the user's own, "" without any.

    Of a traceback in its message, where that has such a line, since there it began.
    """
    from . import patches  # not above: few processes fail

    libraries = patches.library_folders()
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if patches.is_user_frame(trace.tb_frame, libraries):
            place = _place(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    if _TRACEBACK in str(error):
        for file, line, function in _FRAME.findall(str(error)):
            if patches.is_user_file(file, libraries):
                place = _place(file, line, function)
    return place


def _place(file: str, line: object, function: str) -> str:
    here = os.getcwd() + os.sep
    return f"{file[len(here) :] if file.startswith(here) else file}:{line} {function}"
