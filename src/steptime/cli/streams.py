"""Standard output and standard error that outlive their reader, a full disk and a narrow encoding.

All text of a verb is written by ``say``, ``warn`` or a ``PlainConsole``, so that no terminal obeys a character in it.

A verb does its work whole, whatever becomes of its output: a page that was asked for is written although `head` has
left. The first failure of standard output is kept, and told at the end.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steptime.document.plain_text import plain_text

_OUTPUT, _ERROR = 1, 2


def say(*lines: str) -> None:
    """Write lines of a result to standard output, with every character written out that a terminal would obey."""
    sys.stdout.write("".join(plain_text(f"{line}\n") for line in lines))


def warn(sentences: Iterable[str]) -> None:
    """Write notes and warnings to standard error, a line each."""
    sys.stderr.write("".join(plain_text(f"{sentence}\n") for sentence in sentences))


def wrote(what: str, path: Path) -> None:
    """Write to standard error where a file went that a user named, once it is there."""
    warn([f"{what}: {path.resolve()}"])


class StandardStreams:
    r"""Takes the place of ``sys.stdout`` and ``sys.stderr`` for the rest of the process.

    What an encoding lacks is written as ``\xb5``. A descriptor that the caller closed is opened on the null device,
    so that no other file gets its number.
    """

    def __init__(self) -> None:
        closed = _open_closed_descriptors()
        self._output = _Descriptor(_OUTPUT, closed=_OUTPUT in closed)
        self._error = _Descriptor(_ERROR, closed=_ERROR in closed)
        sys.stdout = _as_text(self._output, getattr(sys.stdout, "encoding", None), lines=self._output.isatty())
        sys.stderr = _as_text(self._error, getattr(sys.stderr, "encoding", None), lines=True)

    def output_failure(self) -> OSError | None:
        """Write what is still held back; return the first failure of standard output, None if all was written."""
        sys.stdout.flush()
        return self._output.failure


class _Descriptor(io.FileIO):
    """A descriptor that keeps its first failure, and drops what is written after it."""

    def __init__(self, descriptor: int, *, closed: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        self._was_closed = closed

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        if self._was_closed:
            self.failure = self.failure or OSError(errno.EBADF, "it is closed")
        while self.failure is None:
            try:
                written: int | None = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # whoever shares the descriptor does not want it to block
            except OSError as error:
                self.failure = error
        return len(data)


def _open_closed_descriptors() -> set[int]:
    closed = set()
    for descriptor in (0, _OUTPUT, _ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.add(descriptor)
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
    return closed


def _as_text(descriptor: _Descriptor, encoding: str | None, *, lines: bool) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(descriptor)
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=lines)


def print_json(data: object) -> None:
    """Write ``data`` as JSON to standard output, and nothing else."""
    from steptime.results.jsonlines import json_text  # noqa: PLC0415 - only where JSON is printed

    say(json_text(data, indent=1, default=str))
