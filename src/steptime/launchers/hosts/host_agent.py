"""``python host_agent.py [HOST]``: starts, watches and ends the processes of a launch on the host that it runs on.

It is the far side of a line: ssh or srun joins its standard streams to the launcher. A message is one line of JSON, or
several where this end has much to say (messages.py); an empty line is a heartbeat of the other side. Where the line
is closed, or silent for longer than the plan allows, every process of the launch on this host is ended: a far process
outlives the death of its ssh, and a cut link.

HOST is an index into the plan's hosts; without it the host is found by the name that Slurm gives it. Only the standard
library is imported, and files beside this one that need no more. ``_obey`` has the messages.
"""

import contextlib
import ctypes
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # started by its path; behind the standard library, which nothing installed may replace
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120

from steptime.errors import StoreError
from steptime.launchers.hosts.host_facts import (
    boot,
    counters,
    facts,
    interface_addresses,
    ports_free_at,
    rdma_devices,
    towards,
)
from steptime.launchers.hosts.host_files import look, read_text
from steptime.launchers.hosts.local_copies import LocalCopyError, local_copy, moved
from steptime.launchers.hosts.messages import Message, lines_of
from steptime.launchers.hosts.process_tree import end_below_self, was_stopped
from steptime.plain_file import appending

_SUBREAPER = 36
_TURN_S = 0.2
_BEAT_S = 1.0
_LINK_EVENTS = 1
_LINK_MESSAGES = (16, 17)
"""A link has changed, or is gone (RTM_NEWLINK, RTM_DELLINK)."""
_HAS_CARRIER = 0x40
_MOST_BYTES = 1 << 16
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes long to import
_TETHER = os.path.join(_HERE, os.pardir, os.pardir, "worker", "tether.py")  # noqa: PTH118
_AGENT = os.path.join(_HERE, "mpi_agent.py")  # noqa: PTH118


class HostAgent:
    """The processes of one launch on this host, and the line to the launcher."""

    def __init__(self, host: int | None) -> None:
        self._host = host
        self._plan: Message = {}
        self._unread = b""
        self._heard_at = time.monotonic()
        self._said_at = 0.0
        self._saying = threading.Lock()
        self._said = 0
        """How many messages this host has said."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._agents: dict[str, socket.socket] = {}
        """Of callers in the name of mpiexec: which connection waits for which command."""
        self._listener: socket.socket | None = None
        self._links: socket.socket | None = None
        """Hears from the kernel when a link of this host goes down or comes back."""
        self._interface = ("", 0)
        """The name and the number of the interface that the launch uses."""
        self._own_folder: str | None = None
        self._moved = ("", "")
        """An environment in the shared cache, and its copy on this host's own disk; empty where there is none."""
        self._left = False

    def run(self) -> None:
        """Obey the messages until the launcher, silence or a closed line ends the launch here."""
        silence_s = 60.0  # until the plan arrives
        try:
            while not self._left:
                readable: list[Any] = [0, *(each for each in (self._listener, self._links) if each)]
                ready, _, _ = select.select(readable, [], [], _TURN_S)
                if 0 in ready and not self._read():
                    return
                if self._listener in ready:
                    self._accept_agent()
                if self._links in ready:
                    self._hear_link()
                self._report_ends()
                now = time.monotonic()
                silence_s = self._plan.get("silence_s", silence_s)
                if now - self._heard_at > silence_s:
                    return
                if now - self._said_at > _BEAT_S:
                    self._say()
        finally:
            end_below_self()
            if self._own_folder:
                shutil.rmtree(self._own_folder, ignore_errors=True)

    def _read(self) -> bool:
        """Take what has come; return whether the line is still open."""
        data = os.read(0, _MOST_BYTES)
        if not data:
            return False
        self._heard_at = time.monotonic()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            if line:
                self._obey(json.loads(line))
        return True

    def _say(self, **message: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
        self._said_at = time.monotonic()
        with self._saying, contextlib.suppress(OSError):  # the launcher has gone, which the next turn notices
            self._said += 1
            for line in lines_of({"host": self._host, **message}, self._said):
                os.write(1, line)  # so short a one is written whole

    def _obey(self, message: Message) -> None:
        if "plan" in message:
            self._take_plan(message["plan"])
        if message.get("for", self._host) != self._host:
            return
        for name, answer in (
            ("towards", self._say_towards),
            ("ports", self._say_ports),
            ("clock", lambda asked: self._say(clock=asked["clock"], wall_s=time.time())),
            ("look", self._look),
            ("copy", self._copy),
            ("start", self._start_all),
            ("command", self._start_command),
            ("answer", lambda asked: self._answer_agent(asked["answer"], asked["code"])),
            ("end", self._take_leave),
        ):
            if name in message:
                answer(message)
                return

    def _say_towards(self, asked: Message) -> None:
        self._say(towards=towards(asked["towards"], asked.get("interface")))

    def _say_ports(self, asked: Message) -> None:
        address, count = asked["ports"]
        self._watch_link(address)
        self._say(ports=ports_free_at(address, count), before=counters())

    def _look(self, asked: Message) -> None:
        """Say what shows of the shared files: NFS may take a minute."""
        self._say_later(lambda: {"look": look(asked["look"])})

    def _copy(self, asked: Message) -> None:
        """Have the environment on this host's own disk, and start all that follows from there."""
        source, place = asked["copy"]["environment"], asked["copy"]["place"]

        def copied() -> Message:
            try:
                copy = local_copy(source, place)
            except LocalCopyError as error:
                return {"copied": None, "error": str(error)}
            self._moved = (source, copy)
            return {"copied": copy}

        self._say_later(copied)

    def _say_later(self, work: Callable[[], Message]) -> None:
        """Say what takes long to find; meanwhile this host lives and listens."""
        threading.Thread(target=lambda: self._say(**work()), daemon=True).start()

    def _start_all(self, asked: Message) -> None:
        for process in asked["start"]:
            self._start(process)

    def _start_command(self, asked: Message) -> None:
        argv = self._tethered(["/bin/sh", "-c", asked["command"]])
        self._start({"name": asked["name"], "argv": argv, "environment": asked["environment"]})

    def _take_leave(self, _: Message) -> None:
        end_below_self()
        self._say(left=counters(), own_cpu_s=_children_cpu_s())
        self._left = True

    def _take_plan(self, plan: Message) -> None:
        names = plan["hosts"]
        if self._host is None:
            own = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
            self._host = index_of_host(own, names)
            if self._host is None:
                self._say(stranger=own)
                self._left = True
                return
        self._plan = plan
        if plan.get("probe"):
            from steptime.launchers.orphans import end_orphans  # noqa: PLC0415 - launches do without

            self._say(ready={**facts(names), "left": end_orphans()})
            return
        passed = {name: os.environ[name] for name in plan["stripped"]["passed"] if name in os.environ}
        self._say(ready={"boot": boot(), "step": os.environ.get("SLURM_STEP_ID"), "passed": passed})

    def _tethered(self, command: list[str]) -> list[str]:
        return [sys.executable, "-I", "-S", _TETHER, *command]

    def _start(self, process: Message) -> None:
        """Start one process; its output before it has files of its own goes to ``NAME.launch`` of the run folder."""
        folder, name = self._plan["folder"], process["name"]
        argv, environment = process["argv"], process["environment"]
        if name == "mpiexec":
            agent = self._listen_for_agents()
            rdma = "".join(f",{device}" for device in rdma_devices())
            argv = self._tethered([part.replace("{agent}", agent).replace("{rdma}", rdma) for part in argv])
            environment = {key: value.replace("{agent}", agent) for key, value in environment.items()}
        if self._moved[0]:
            argv = [moved(part, *self._moved) for part in argv]
            environment = {key: moved(value, *self._moved) for key, value in environment.items()}
        stripped = self._plan["stripped"]
        inherited = {
            key: value
            for key, value in os.environ.items()
            if key in stripped["passed"]
            or not (key in stripped["names"] or key.startswith(tuple(stripped["prefixes"])))
        }
        own = {"STEPTIME_PARENT": str(os.getpid()), "STEPTIME_RUNNER": _own_identity()}
        try:
            with appending(Path(folder), f"{name}.launch") as output:
                self._running[name] = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env={**inherited, **environment, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            self._say(ended=name, code=None, error=f"could not start {argv[0]}: {error.strerror}")
        except StoreError as error:
            self._say(ended=name, code=None, error=str(error))

    def _report_ends(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                self._say(ended=name, code=code)
            elif was_stopped(process.pid):
                self._say(stopped=name)

    def _watch_link(self, address: str) -> None:
        """Have the kernel say from now on when the link behind an own address changes; see rtnetlink(7)."""
        label = next((name for name, each in interface_addresses().items() if address in each), None)
        if label is None or self._links is not None:
            return
        name = label.partition(":")[0]  # a second address may have a label of its own, as eth0:1
        with contextlib.suppress(OSError):  # a container may forbid it; a link that stays down is noticed by silence
            self._interface = (name, socket.if_nametoindex(name))
            self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
            self._links.bind((0, _LINK_EVENTS))

    def _hear_link(self) -> None:
        assert self._links is not None  # noqa: S101 - it was ready
        try:
            data = self._links.recv(_MOST_BYTES)
        except OSError:
            return
        name, number = self._interface
        while len(data) >= struct.calcsize("=IHHII"):
            length, kind, *_ = struct.unpack_from("=IHHII", data)
            if kind in _LINK_MESSAGES and length >= struct.calcsize("=IHHIIBBHiII"):
                index, flags = struct.unpack_from("=iI", data, struct.calcsize("=IHHIIBBH"))
                if index == number and not flags & _HAS_CARRIER:
                    self._say(link_down=name)
            data = data[max((length + 3) & ~3, 16) :]

    def _listen_for_agents(self) -> str:
        """Return the program by which an mpiexec reaches another host: it asks this process, which asks the launcher.

        The socket lies in a folder that only this user can open.
        """
        self._own_folder = tempfile.mkdtemp(prefix="steptime-")
        path = os.path.join(self._own_folder, "agents")  # noqa: PTH118
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(128)
        program = os.path.join(self._own_folder, "on-host.sh")  # noqa: PTH118
        with open(program, "w", encoding="utf-8") as file:  # noqa: PTH123
            command = shlex.join([sys.executable, "-I", "-S", _AGENT, path])
            file.write(f'#!/bin/sh\nexec {command} "$@"\n')
        os.chmod(program, 0o700)  # noqa: PTH101
        return program

    def _accept_agent(self) -> None:
        assert self._listener is not None  # noqa: S101 - it was ready
        connection, _ = self._listener.accept()
        data = b""
        while not data.endswith(b"\n"):
            piece = connection.recv(_MOST_BYTES)
            if not piece:
                connection.close()
                return
            data += piece
        asked = json.loads(data)
        name = f"proxy-{len(self._agents)}"
        self._agents[name] = connection
        self._say(agent=name, on=asked["host"], command=asked["command"])

    def _answer_agent(self, name: str, code: int) -> None:
        connection = self._agents[name]
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % code)
        connection.close()


def index_of_host(own: str, names: Sequence[str]) -> int | None:
    """Return which of ``names`` means this host: ``own`` itself, or the only one that differs in its domain alone."""
    if own in names:
        return names.index(own)
    same = [index for index, name in enumerate(names) if name.partition(".")[0] == own.partition(".")[0]]
    return same[0] if len(same) == 1 else None


def _own_identity() -> str:
    """Return this process as the marks of a launch name its runner; see ``ProcessIdentity``."""
    ticks = read_text("/proc/self/stat").rpartition(")")[2].split()[19]
    return f"{os.getpid()}:{ticks}:{os.stat('/proc/self/ns/pid').st_ino}:{boot()}"  # noqa: PTH116


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    """Run the host agent; a signal that asks it to end makes it end the launch on this host first."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    HostAgent(int(sys.argv[1]) if sys.argv[1:] else None).run()


if __name__ == "__main__":
    main()
