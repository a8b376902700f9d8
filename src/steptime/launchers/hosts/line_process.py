"""The ssh or srun of one line: a process that takes messages and prints lines, and that may stop answering at any time.

A thread writes to it, so that a process that takes nothing holds up no other; another one listens.
"""

import contextlib
import io
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from steptime.errors import LaunchError
from steptime.launchers.hosts.commands import variables_of_line
from steptime.plain_file import appending

_CHUNK_BYTES = 4096
"""So much is written at once: a line that takes a long message slowly is not stuck."""
_TAIL_LINES = 3
_MOST_NOTES = 100
"""So many lines that are not messages are kept."""
_MOST_OF_A_NOTE = 1000
_WITHOUT = {"srun": "; launcher=ssh reaches nodes without it, and launcher=local runs on this host alone"}
"""What helps where a program cannot be started, as in a container of a Slurm job."""


class LineProcess:
    """The process of one line, and what it said on standard error (``NAME.launch`` of the folder)."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path) -> None:
        """Start the process; raises LaunchError where its program is missing."""
        self.name = name
        self.kept = folder / f"{name}.launch"
        self._waiting: queue.Queue[bytes | None] = queue.Queue()
        self._taken_at: float | None = None
        """Since when it is asked to take what it has not taken yet."""
        self._notes = 0
        self._writer: threading.Thread | None = None
        with appending(folder, self.kept.name) as output:
            try:
                self.process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    bufsize=0,
                    start_new_session=True,
                    env=variables_of_line(argv, os.environ),
                )
            except OSError as error:
                message = f"could not start {argv[0]}: {error.strerror}{_WITHOUT.get(argv[0], '')}"
                raise LaunchError(message) from error

    def begin(self, hear: Callable[["LineProcess", bytes], None]) -> None:
        """Write what is put, and give every line that the process prints to ``hear``, from threads of their own."""
        self._writer = threading.Thread(target=self._write, name=f"to {self.name}", daemon=True)
        self._writer.start()
        threading.Thread(target=self._listen, args=[hear], name=f"from {self.name}", daemon=True).start()

    def put(self, data: bytes) -> None:
        """Have the process take ``data`` when it can; returns at once."""
        self._waiting.put(data)

    def beat(self) -> None:
        """Have the process take a heartbeat, unless something else waits already."""
        if self._waiting.empty() and self._taken_at is None:
            self.put(b"\n")

    def stuck_s(self) -> float:
        """Return for how many seconds the process has taken nothing of what waits."""
        since = self._taken_at
        return 0.0 if since is None else time.monotonic() - since

    def note(self, line: bytes) -> None:
        """Keep a line that is not a message, with what the process said on standard error."""
        self._notes += 1
        if self._notes <= _MOST_NOTES and line.strip():
            with (
                contextlib.suppress(OSError),
                appending(self.kept.parent, self.kept.name) as file,
            ):  # a full disk; a message fails by itself
                file.write(line.rstrip()[:_MOST_OF_A_NOTE] + b"\n")

    def last_words(self) -> str:
        """Return the last lines that it said on standard error, and those that were no messages, as one line."""
        with contextlib.suppress(OSError):
            lines = self.kept.read_text(errors="replace").splitlines()
            return " ".join(" ".join(lines[-_TAIL_LINES:]).split())
        return ""

    def close_input(self) -> None:
        """Close the line behind what waits to be written."""
        if self._writer is not None:
            self._waiting.put(None)
        elif self.process.stdin is not None:
            self.process.stdin.close()

    def close_output(self) -> None:
        """Close what an ended process has said; its writer has met the closed pipe by now."""
        if self._writer is not None:
            self._writer.join(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _write(self) -> None:
        stdin = self.process.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        while (data := self._waiting.get()) is not None:
            left = memoryview(data)
            with contextlib.suppress(OSError):  # the line has ended, which its exit code shows
                while left:
                    self._taken_at = time.monotonic()
                    left = left[stdin.write(left[:_CHUNK_BYTES]) :]
            self._taken_at = None
        with contextlib.suppress(OSError):
            stdin.close()

    def _listen(self, hear: Callable[["LineProcess", bytes], None]) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        # Without a buffer every byte would be read by a call of its own.
        stream = io.BufferedReader(cast("io.FileIO", self.process.stdout))
        with contextlib.suppress(ValueError, OSError), stream:  # closed meanwhile
            for line in stream:
                hear(self, line)
