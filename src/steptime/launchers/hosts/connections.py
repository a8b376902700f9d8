"""The lines to the host agents of a launch: ssh or srun processes whose standard streams carry messages both ways.

A line lives as long as both sides hear from each other. When this process is killed, its pipes close, and every
agent ends what it started; when a host or a link dies, its host agent falls silent, which is noticed here.

The ssh or srun of one line: a process that takes messages and prints lines, and that may stop answering at any time.

A thread writes to it, so that a process that takes nothing holds up no other; another one listens.
"""

import contextlib
import io
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from steptime.errors import LaunchError
from steptime.launchers.hosts.commands import variables_of_line
from steptime.launchers.hosts.messages import DamagedMessageError, ForeignLineError, Joiner
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


SILENCE_S = 10.0
"""After so long without a sign, each side takes the other for dead."""
_BEAT_S = 1.0
_POLL_S = 0.05
_CLOSE_S = 3.0
_SSH_FAILED = 255
"""The exit code of an ssh that has lost its connection; any other is that of the host agent."""


class Lines:
    """The lines of one launch or probe; a context manager that closes them and leaves no ssh or srun behind."""

    def __init__(self, commands: Mapping[str, Sequence[str]], hosts: Sequence[str], folder: Path) -> None:
        """Start the processes.

        Args:
            commands: the argument list of each line, by its name: ``host-NAME`` leads to one host, another to all.
            hosts: the names of all hosts; one line may lead to all of them.
            folder: where what the processes say on standard error, and lines that are no messages, are kept, as
                ``NAME.launch``.

        Raises LaunchError where a program is missing.
        """
        self.hosts = list(hosts)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._heard = dict.fromkeys(range(len(hosts)), time.monotonic())
        self._left: set[int] = set()
        self._lost: set[int] = set()
        """Hosts that their line has lost."""
        self._closed = threading.Event()
        self._unusable: str | None = None
        """Why what was heard cannot be used."""
        self._lines: dict[str, LineProcess] = {}
        self._joiners: dict[str, Joiner] = {}
        try:
            for name, argv in commands.items():
                self._joiners[name] = Joiner(len(hosts))
                self._lines[name] = LineProcess(name, argv, folder)
            for line in self._lines.values():
                line.begin(self._hear)
            threading.Thread(target=self._beat, name="heartbeats", daemon=True).start()
        except BaseException:  # also a full disk or a signal, after which nothing else would end the first lines
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, **message: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
        """Send a message to all host agents, or only to the host with the index ``for``; returns at once.

        Where one line leads to all hosts, those whom the message does not concern ignore it.
        """
        own = self._line_of(message["for"]) if "for" in message else None
        data = json.dumps(message).encode() + b"\n"
        for line in self._lines.values() if own is None else [own]:
            line.put(data)

    def receive(self, limit_s: float = _POLL_S) -> dict[str, Any] | None:
        """Return the next message of any host agent; None if none comes within ``limit_s``."""
        with contextlib.suppress(queue.Empty):
            return self._messages.get(timeout=limit_s)
        return None

    def gather(
        self, kind: str, limit_s: float, hosts: Sequence[int] | None = None, silence_s: float | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return one message that holds ``kind`` of each host, or of ``hosts``.

        A host that sends nothing for ``silence_s``, or for ``limit_s`` where that is None, is dead.

        Raises LaunchError that names who did not answer.
        """
        wanted = range(len(self.hosts)) if hosts is None else hosts
        found: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + limit_s
        while missing := [host for host in wanted if host not in found]:
            message = self.receive()
            if message and kind in message:
                found[message["host"]] = message
            elif message is None and (failure := self.failure(limit_s if silence_s is None else silence_s)):
                raise LaunchError(failure)
            elif time.monotonic() > deadline:
                names = ", ".join(self.hosts[host] for host in missing)
                message_text = f"{names} did not answer within {limit_s:g} s ({kind})"
                raise LaunchError(message_text)
        return found

    def failure(self, silence_s: float = SILENCE_S) -> str | None:
        """Say which line or host has died, and what it said last; None while all live."""
        if self._unusable:
            return self._unusable
        for name, line in self._lines.items():
            code = line.process.poll()
            if code is not None and not self._messages.qsize() and not self._all_left():
                said = line.last_words()
                return f"the line to {name} ended (exit code {code}{f': {said}' if said else ''})"
        if silent := self._silent(silence_s):
            names = ", ".join(self.hosts[host] for host in silent)
            return f"{names} has not been heard for {silence_s:g} s: the host or its link is dead"
        if stuck := self._stuck(silence_s):
            names = ", ".join(self.hosts[host] for host in stuck)
            return f"{names} has taken no message for {silence_s:g} s: the host or its link is dead"
        for name, line in self._lines.items():
            if line.stuck_s() > silence_s and not self._all_left():
                return f"{name} has taken no message for {silence_s:g} s: {', '.join(self.hosts)} or a link is dead"
        return None

    def lost(self) -> list[str]:
        """Return the hosts that have fallen silent, or whose own line takes nothing or has ended with ssh's failure."""
        ended = {
            index
            for index in range(len(self.hosts))
            if (line := self._line_of(index)) is not None
            and line.process.poll() == _SSH_FAILED
            and index not in self._left
        }
        silent, stuck = self._silent(SILENCE_S), self._stuck(SILENCE_S)
        return [self.hosts[host] for host in sorted({*silent, *stuck, *ended, *self._lost})]

    def has_left(self, host: int) -> None:
        """Note that a host agent has said its last word."""
        self._left.add(host)

    def close(self) -> None:
        """Close all lines, which ends the host agents, and wait until no process of this side is left."""
        self._closed.set()
        for line in self._lines.values():
            line.close_input()
        processes = [line.process for line in self._lines.values()]
        deadline = time.monotonic() + (_CLOSE_S if self._all_left() else 0.0)
        for process in processes:
            _await(process, deadline)
        for process in processes:
            if process.poll() is None:
                process.terminate()  # srun ends its tasks at this, ssh its connection
        deadline = time.monotonic() + _CLOSE_S
        for process in processes:
            _await(process, deadline)
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
        for line in self._lines.values():
            line.close_output()

    def _all_left(self) -> bool:
        return len(self._left) == len(self.hosts)

    def _line_of(self, host: int) -> LineProcess | None:
        """Return the line that leads to one host only; None if one leads to all."""
        return self._lines.get(f"host-{self.hosts[host]}")

    def _silent(self, silence_s: float) -> list[int]:
        now = time.monotonic()
        return [host for host, at in self._heard.items() if host not in self._left and now - at > silence_s]

    def _stuck(self, silence_s: float) -> list[int]:
        """Return the hosts whose own line has taken nothing for so long."""
        lines = {host: self._line_of(host) for host in range(len(self.hosts)) if host not in self._left}
        return [host for host, line in lines.items() if line is not None and line.stuck_s() > silence_s]

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            for line in self._lines.values():
                line.beat()

    def _hear(self, line: LineProcess, said: bytes) -> None:
        """Take a line that a host agent said, or that came between; called by the threads that listen."""
        try:
            host, message = self._joiners[line.name].joined(said)
        except ForeignLineError:  # the greeting of a login shell
            line.note(said)
            return
        except DamagedMessageError as error:
            line.note(said)
            self._unusable = f"the line to {line.name} damaged a message: {error}; {line.kept} has the line"
            return
        if host is None:
            if message and "stranger" in message:
                self._unusable = (
                    f"{message['stranger']} is started as a host, and is none of {', '.join(self.hosts)}: "
                    "give hosts.names as Slurm has them (sinfo -N)"
                )
            return
        self._heard[host] = time.monotonic()
        if message and "lost" in message:  # said by a driver of Ray, to which one line leads to all hosts
            self._lost.add(host)
            self._unusable = self._unusable or message["lost"]
            return
        if message and len(message) > 1:
            self._messages.put(message)


def _await(process: subprocess.Popen[bytes], deadline: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
