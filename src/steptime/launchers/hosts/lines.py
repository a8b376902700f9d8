"""The lines to the far ends of a launch: ssh or srun processes whose standard streams carry messages both ways.

A line lives as long as both sides hear from each other. When this process is killed, its pipes close, and every far
end ends what it started; when a host or a link dies, its far end falls silent, which is noticed here.
"""

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from steptime.errors import LaunchError
from steptime.launchers.hosts.messages import DamagedMessageError, ForeignLineError, Joiner

SILENCE_S = 10.0
"""After so long without a sign, each side takes the other for dead."""
_BEAT_S = 1.0
_POLL_S = 0.05
_TAIL_LINES = 3
_MOST_NOTES = 100
"""So many lines that are no messages are kept."""
_MOST_OF_A_NOTE = 1000
_CLOSE_S = 3.0
_SSH_FAILED = 255
"""The exit code of an ssh that has lost its connection; any other is that of the far end."""


class Lines:
    """The lines of one launch or probe; a context manager that closes them and leaves no ssh or srun behind."""

    def __init__(self, commands: Mapping[str, Sequence[str]], hosts: Sequence[str], folder: Path) -> None:
        """Start the processes.

        Args:
            commands: the argument list of each line, by its name.
            hosts: the names of all hosts; one line may lead to all of them.
            folder: where what the processes say on standard error, and lines that are no messages, are kept, as
                ``NAME.launch``.

        Raises LaunchError where a program is missing.
        """
        self.hosts = list(hosts)
        self._folder = folder
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._heard = dict.fromkeys(range(len(hosts)), time.monotonic())
        self._left: set[int] = set()
        self._closed = threading.Event()
        self._unusable: str | None = None
        """Why what was heard cannot be used."""
        self._writing = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        try:
            for name, argv in commands.items():
                self._processes[name] = self._started(name, argv)
        except BaseException:  # also a full disk or a signal, after which nobody else would end the first lines
            self.close()
            raise
        self._threads.append(threading.Thread(target=self._beat, name="signs of life", daemon=True))
        for name in self._processes:
            self._threads.append(threading.Thread(target=self._listen, args=[name], name="far ends", daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, **message: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
        """Send a message to all far ends; those whom it does not concern (``for``) ignore it."""
        self._write(json.dumps(message).encode() + b"\n")

    def receive(self, limit_s: float = _POLL_S) -> dict[str, Any] | None:
        """Return the next message of any far end; None where none comes within ``limit_s``."""
        with contextlib.suppress(queue.Empty):
            return self._messages.get(timeout=limit_s)
        return None

    def gather(
        self, kind: str, limit_s: float, hosts: Sequence[int] | None = None, silence_s: float | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return one message that holds ``kind`` of each host, or of ``hosts``.

        A host that says nothing at all for ``silence_s``, or for ``limit_s`` where that is None, is dead.

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
        for name, process in self._processes.items():
            if process.poll() is not None and not self._messages.qsize() and not self._all_left():
                said = " ".join(self._tail(name).split())
                return f"the line to {name} ended (exit code {process.returncode}{f': {said}' if said else ''})"
        now = time.monotonic()
        silent = [
            self.hosts[host] for host, at in self._heard.items() if host not in self._left and now - at > silence_s
        ]
        return (
            f"{', '.join(silent)} has not been heard for {silence_s:g} s: the host or its link is dead"
            if silent
            else None
        )

    def lost(self) -> list[str]:
        """Return the hosts that have fallen silent, and those whose own line has ended with ssh's failure."""
        now = time.monotonic()
        silent = {host for host, at in self._heard.items() if host not in self._left and now - at > SILENCE_S}
        ended = {
            index
            for index, host in enumerate(self.hosts)
            if (process := self._processes.get(f"host-{host}")) is not None
            and process.poll() == _SSH_FAILED
            and index not in self._left
        }
        return [self.hosts[host] for host in sorted(silent | ended)]

    def has_left(self, host: int) -> None:
        """Note that a far end has said its last word."""
        self._left.add(host)

    def close(self) -> None:
        """Close all lines, which ends the far ends, and wait until no process of this side is left."""
        self._closed.set()
        for process in self._processes.values():
            with contextlib.suppress(OSError, AttributeError):
                process.stdin.close()  # type: ignore[union-attr] # it was asked for
        deadline = time.monotonic() + _CLOSE_S
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()) if self._all_left() else 0.0)
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()  # srun ends its tasks at this, ssh its connection
        for process in self._processes.values():
            try:
                process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in self._processes.values():
            if process.stdout:
                process.stdout.close()

    def _all_left(self) -> bool:
        return len(self._left) == len(self.hosts)

    def _started(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.launch").open("ab") as output:
            try:
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                message = f"could not start {argv[0]}: {error.strerror}"
                raise LaunchError(message) from error

    def _write(self, data: bytes) -> None:
        with self._writing:
            for process in self._processes.values():
                with contextlib.suppress(OSError, ValueError):  # the line has ended, which `failure` says
                    process.stdin.write(data)  # type: ignore[union-attr] # it was asked for

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            self._write(b"\n")

    def _listen(self, name: str) -> None:
        stdout = self._processes[name].stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        joiner = Joiner(len(self.hosts))
        notes = 0
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            for line in stdout:
                try:
                    host, message = joiner.joined(line)
                except ForeignLineError:  # the greeting of a login shell
                    notes += 1
                    if notes <= _MOST_NOTES:
                        self._note(name, line)
                    continue
                except DamagedMessageError as error:
                    self._note(name, line)
                    kept = self._folder / f"{name}.launch"
                    self._unusable = f"the line to {name} damaged a message: {error}; {kept} has the line"
                    continue
                if host is None:  # it waits for its plan, which says which host it is on
                    continue
                self._heard[host] = time.monotonic()
                if message and len(message) > 1:
                    self._messages.put(message)

    def _note(self, name: str, line: bytes) -> None:
        """Keep a line that is no message, with what the process said on standard error."""
        with contextlib.suppress(OSError), (self._folder / f"{name}.launch").open("ab") as file:
            file.write(line.rstrip()[:_MOST_OF_A_NOTE] + b"\n")

    def _tail(self, name: str) -> str:
        with contextlib.suppress(OSError):
            lines = (self._folder / f"{name}.launch").read_text(errors="replace").splitlines()
            return "\n".join(lines[-_TAIL_LINES:])
        return ""
