"""``python far_end.py [HOST]``: starts, watches and ends the processes of a launch on the host that it runs on.

It is the far end of a line: ssh or srun joins its standard streams to the launcher. Each message is one line of JSON;
an empty line only says that the other side lives. Where the line is closed, or silent for longer than the plan allows,
every process of the launch on this host is ended: a far process outlives the death of its ssh, and a cut link.

HOST is an index into the plan's hosts; without it the host is found by the name that Slurm gives it. Only the standard
library is imported. docs/hosts.md has the messages.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import random
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
from typing import Any

Message = dict[str, Any]

_SUBREAPER = 36
_GRACE_S = 2.0
"""How long processes may take to end after they were asked to."""
_TURN_S = 0.2
_BEAT_S = 1.0
FIRST_PORT, LAST_PORT = 15_000, 30_000
"""Below the range from which the kernel takes ports for outgoing connections: a port found free here is not taken by
somebody's connection before the framework listens on it.
"""
_ATTEMPTS = 200
_ADDRESS_OF_INTERFACE = 0x8915
_LINK_EVENTS = 1
_LINK_MESSAGES = (16, 17)
"""A link has changed, or is gone (RTM_NEWLINK, RTM_DELLINK)."""
_HAS_CARRIER = 0x40
_MOST_BYTES = 1 << 16
_GPUS, _PCI_DEVICES = "/proc/driver/nvidia/gpus", "/sys/bus/pci/devices"
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes long to import
_TETHER = os.path.join(_HERE, os.pardir, os.pardir, "worker", "tether.py")  # noqa: PTH118
_AGENT = os.path.join(_HERE, "mpi_agent.py")  # noqa: PTH118


class FarEnd:
    """The processes of one launch on this host, and the line to the launcher."""

    def __init__(self, host: int | None) -> None:
        self._host = host
        self._plan: Message = {}
        self._unread = b""
        self._heard_at = time.monotonic()
        self._said_at = 0.0
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._agents: dict[str, socket.socket] = {}
        """Of callers in the name of mpiexec: which connection waits for which command."""
        self._listener: socket.socket | None = None
        self._links: socket.socket | None = None
        """Hears from the kernel when a link of this host goes down or comes back."""
        self._interface = ("", 0)
        """The name and the number of the interface that the launch uses."""
        self._own_folder: str | None = None
        self._left = False

    def run(self) -> None:
        """Obey the messages until the launcher, silence or a closed line ends the launch here."""
        silence_s = 60.0  # until the plan says
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
            self._end_all()
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
        with contextlib.suppress(OSError):  # nobody listens any more, which the next turn notices
            os.write(1, json.dumps({"host": self._host, **message}).encode() + b"\n")

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
            ("start", self._start_all),
            ("command", self._start_command),
            ("answer", lambda asked: self._answer_agent(asked["answer"], asked["code"])),
            ("end", self._take_leave),
        ):
            if name in message:
                answer(message)
                return

    def _say_towards(self, asked: Message) -> None:
        self._say(towards=_towards(asked["towards"], asked.get("interface")))

    def _say_ports(self, asked: Message) -> None:
        address, count = asked["ports"]
        self._watch_link(address)
        self._say(ports=ports_free_at(address, count), before=_counters())

    def _look(self, asked: Message) -> None:
        """Say how a file of the shared folder showed, and meanwhile that this host lives: NFS may take a minute."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(_BEAT_S):
                self._say()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        found = _seconds_until(asked["look"])
        done.set()
        thread.join()
        self._say(look=found)

    def _start_all(self, asked: Message) -> None:
        for process in asked["start"]:
            self._start(process)

    def _start_command(self, asked: Message) -> None:
        argv = self._tethered(["/bin/sh", "-c", asked["command"]])
        self._start({"name": asked["name"], "argv": argv, "environment": asked["environment"]})

    def _take_leave(self, _: Message) -> None:
        self._end_all()
        self._say(left=_counters(), own_cpu_s=_children_cpu_s())
        self._left = True

    def _take_plan(self, plan: Message) -> None:
        names = plan["hosts"]
        if self._host is None:
            own = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
            self._host = names.index(own)
        self._plan = plan
        self._say(
            ready=_facts(names) if plan.get("probe") else {"boot": _boot(), "step": os.environ.get("SLURM_STEP_ID")}
        )

    def _tethered(self, command: list[str]) -> list[str]:
        return [sys.executable, "-I", "-S", _TETHER, *command]

    def _start(self, process: Message) -> None:
        """Start one process; what it says before it has files of its own goes to ``NAME.launch`` of the run folder."""
        folder, name = self._plan["folder"], process["name"]
        argv, environment = process["argv"], process["environment"]
        if name == "mpiexec":
            agent = self._listen_for_agents()
            argv = self._tethered([part.replace("{agent}", agent) for part in argv])
            environment = {key: value.replace("{agent}", agent) for key, value in environment.items()}
        stripped = self._plan["stripped"]
        inherited = {
            key: value
            for key, value in os.environ.items()
            if key in stripped["passed"]
            or not (key in stripped["names"] or key.startswith(tuple(stripped["prefixes"])))
        }
        own = {"STEPTIME_PARENT": str(os.getpid()), "STEPTIME_RUNNER": _own_identity()}
        try:
            with open(os.path.join(folder, f"{name}.launch"), "ab") as output:  # noqa: PTH118, PTH123
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

    def _report_ends(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                self._say(ended=name, code=code)
            elif _was_stopped(process.pid):
                self._say(stopped=name)

    def _watch_link(self, address: str) -> None:
        """Have the kernel say from now on when the link behind an own address changes; see rtnetlink(7)."""
        name = next((name for name, each in interface_addresses().items() if each == address), None)
        if name is None or self._links is not None:
            return
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

    def _end_all(self) -> None:
        """End every process below this one, also those whose parents have gone, and wait for them."""
        for pid in _below():
            _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while _below() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)
        while found := _below():
            for pid in found:
                _signal(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _was_stopped(pid: int) -> bool:
    """Say whether a signal has stopped a child of this process since the last call, even if it was continued since."""
    with contextlib.suppress(ChildProcessError):  # it has ended
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None
    return False


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _below() -> list[int]:
    """Return the living processes below this one; it is the parent of those whose own parents have ended."""
    found, waiting = [], [os.getpid()]
    while waiting:
        parent = waiting.pop()
        for thread in _listed(f"/proc/{parent}/task"):
            below = [int(pid) for pid in _text(f"/proc/{parent}/task/{thread}/children").split()]
            waiting += below
            found += [pid for pid in below if _state(pid) not in ("Z", "X", "")]
    return found


def _state(pid: int) -> str:
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _own_identity() -> str:
    """Return this process as the marks of a launch name its runner; see ``ProcessIdentity``."""
    ticks = _text("/proc/self/stat").rpartition(")")[2].split()[19]
    return f"{os.getpid()}:{ticks}:{os.stat('/proc/self/ns/pid').st_ino}:{_boot()}"  # noqa: PTH116


def _boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id").strip() or "unknown"


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _counters() -> Message:
    """Return the counters of this host by which foreign load during the launch is told."""
    fields = _text("/proc/stat").partition("\n")[0].split()[1:9]
    ticks = float(os.sysconf("SC_CLK_TCK"))
    purposes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    loads = _text("/proc/loadavg").split()
    return {
        "at_s": time.monotonic(),
        "loads": [float(each) for each in loads[:3]],
        "runnable": float(loads[3].partition("/")[0]) - 1.0,
        "processor_s": {name: int(value) / ticks for name, value in zip(purposes, fields, strict=False)},
        "memory_total_bytes": _memory("MemTotal"),
        "memory_available_bytes": _memory("MemAvailable"),
        "swapped_in_pages": _vmstat("pswpin"),
        "network": _network(),
    }


def _memory(name: str) -> float | None:
    lines = (line.split() for line in _text("/proc/meminfo").splitlines())
    return next((float(line[1]) * 1024.0 for line in lines if line[0] == f"{name}:"), None)


def _vmstat(name: str) -> float | None:
    lines = (line.split() for line in _text("/proc/vmstat").splitlines())
    return next((float(line[1]) for line in lines if line[0] == name), None)


def _network() -> dict[str, tuple[int, int]]:
    """Return bytes received and sent by interface."""
    found = {}
    for line in _text("/proc/self/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found


def _facts(names: list[str]) -> Message:
    """Return what a study must know of this host before anything is launched."""
    return {
        "name": socket.gethostname(),
        "boot": _boot(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_bytes": _memory("MemAvailable"),
        "gpus": len(_listed(_GPUS)),
        "gpu_cores": gpu_cores(sorted(os.sched_getaffinity(0))),
        "interfaces": interface_addresses(),
        "reached_at": (os.environ.get("SSH_CONNECTION") or "- - - -").split()[2],
        "addresses": [_resolved(name) for name in names],
        "user": os.getuid(),
        "step": os.environ.get("SLURM_STEP_ID"),
    }


def gpu_cores(own: list[int], listed: str = _GPUS, devices: str = _PCI_DEVICES) -> list[list[int]]:
    """Return for each GPU, by its address on the bus, the ``own`` cores on its NUMA node; all where unknown."""
    found = []
    for address in sorted(_listed(listed)):
        near: set[int] = set()
        for part in _text(os.path.join(devices, address.lower(), "local_cpulist")).strip().split(","):  # noqa: PTH118
            first, _, last = part.partition("-")
            if first.isdigit():
                near.update(range(int(first), int(last or first) + 1))
        found.append([core for core in own if core in near] or own)
    return found


def interface_addresses() -> dict[str, str]:
    """Return the IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                found[name] = socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF_INTERFACE, asked)[20:24])
    return found


def _resolved(name: str) -> str | None:
    try:
        found: str = socket.getaddrinfo(name.rpartition("@")[2], None, socket.AF_INET)[0][4][0]  # type: ignore[assignment]
    except OSError:
        return None
    return None if found.startswith("127.") else found


def _towards(address: str, wanted: str | None) -> Message:
    """Return the interface and the own address by which this host reaches ``address``, or those of ``wanted``."""
    known = interface_addresses()
    if wanted is not None:
        return {"interface": wanted, "address": known.get(wanted)}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        try:
            probe.connect((address, 9))
        except OSError:
            return {"interface": None, "address": None}
        own = probe.getsockname()[0]
    return {"interface": next((name for name, each in known.items() if each == own), None), "address": own}


def ports_free_at(address: str, count: int) -> list[int]:
    """Return ``count`` different ports on which nobody listens at ``address``, fewer where they cannot be found.

    All are held while the others are sought, so that none is given twice.
    """
    held: list[socket.socket] = []
    chosen = random.SystemRandom()
    try:
        for _ in range(_ATTEMPTS + count):
            if len(held) == count:
                break
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                candidate.bind((address, chosen.randint(FIRST_PORT, LAST_PORT)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def _seconds_until(asked: Message) -> Message:
    """Return after how long a file of the shared folder showed the launcher's text, and what an interpreter takes."""
    started, path = time.monotonic(), asked["file"]
    folder, name = os.path.split(path)
    seen_s = None
    while time.monotonic() - started < asked["limit_s"]:
        if name in _listed(folder) and _text(path) == asked["text"]:
            seen_s = time.monotonic() - started
            break
        time.sleep(0.02)
    started = time.monotonic()
    imported = None
    if seen_s is not None:
        command = [asked["interpreter"], "-c", "import numpy"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120.0, check=False)
            imported = time.monotonic() - started if done.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            pass
    return {"seen_s": seen_s, "import_s": imported}


def main() -> None:
    """Run the far end; a signal that asks it to end makes it end the launch on this host first."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    FarEnd(int(sys.argv[1]) if sys.argv[1:] else None).run()


if __name__ == "__main__":
    main()
