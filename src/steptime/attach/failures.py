"""The exception that ended this process, for the answer: a line in ``failed-HOST.txt``."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

LONGEST = 500


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
    """Return the line of ``error`` that names its cause: the first, or the last where its message holds a traceback.

    A loader raises that of its worker process so; what else has several lines ends in hints.
    """
    text = [line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))]
    if "Traceback (most recent call last)" in str(error):
        return text[-1]
    name = type(error).__name__
    return f"{name}: {text[0]}" if text else name


def place_of(error: BaseException) -> str:
    """Return "FILE:LINE FUNCTION" of the innermost line that is the user's own, "" without any."""
    from . import patches  # not above: few processes fail

    libraries = patches.library_folders()
    here, found = os.getcwd() + os.sep, ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if patches.is_user_frame(trace.tb_frame, libraries):
            file = code.co_filename
            file = file[len(here) :] if file.startswith(here) else file
            found = f"{file}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return found
