"""Namespaces of the kernel: made without changing this process, and held by open files until the last user has gone.

The private network of a launch: a network namespace that holds its processes and a loopback interface, nothing else.

Frameworks trust whoever connects: servers read and write files for any caller, and calls are unpickled. In a namespace
of its own, a launch is out of reach for other users of the machine and for other machines. Nothing is left when the
last process of the launch has ended. Without root, the namespace belongs to a user namespace, in which everybody has
the same number as outside.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from steptime.errors import LaunchError
from steptime.launchers.request import Isolation, Request
from steptime.plain_file import PlainFolder, temporary_folder

T = TypeVar("T")
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 1

_HELPER = """
import ctypes, fcntl, socket, struct, sys
print(ctypes.CDLL(None).unshare(int(sys.argv[1])), flush=True)
input()
if sys.argv[2:]:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 1))
print("ready", flush=True)
input()
"""
"""Moves itself into new namespaces, waits for its maps of users, and raises the loopback interface where one is new."""


def within(namespace: Path, act: Callable[[], T]) -> T:
    """Return what ``act`` returns in a thread that is in the network ``namespace``; raises OSError where it cannot be.

    A thread changes its network alone and is never used again, so that no other thread of this process notices.
    """

    def enter_and_act() -> T:
        with namespace.open("rb") as file:
            _checked(_libc().setns(file.fileno(), NEW_NETWORK), namespace)
        return act()

    return _in_thread(enter_and_act)


def make_network() -> int:
    """Return a file that holds a new network namespace, whose only interface is loopback; raises OSError."""

    def leave_and_open() -> int:
        _checked(_libc().unshare(NEW_NETWORK), "a new network namespace")
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return _in_thread(leave_and_open)


def make_users(user_map: str, group_map: str, *, network: bool = False) -> list[int]:
    """Return files that hold a new user namespace and, if asked for, a network namespace that belongs to it.

    Args:
        user_map: the map of users, as ``/proc/PID/uid_map`` wants it.
        group_map: likewise the map of groups; an ordinary user may map one group, and gives up to change groups.
        network: whether a network is made, with loopback only.

    Raises OSError where the kernel refuses.
    """
    flags = NEW_USERS | (NEW_NETWORK if network else 0)
    command = [sys.executable, "-I", "-S", "-c", _HELPER, str(flags), *(["network"] if network else [])]
    held: list[int] = []
    # A process of its own, since the kernel moves no process of several threads into another user namespace.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as helper:
        assert helper.stdin is not None  # noqa: S101 - it was asked for; so was the other
        assert helper.stdout is not None  # noqa: S101
        try:
            if helper.stdout.readline().strip() != "0":
                raise PermissionError("the kernel made no user namespace")  # noqa: EM101, TRY003 - one sentence
            own = Path(f"/proc/{helper.pid}")
            if os.geteuid():
                (own / "setgroups").write_text("deny")
            (own / "uid_map").write_text(user_map)
            (own / "gid_map").write_text(group_map)
            helper.stdin.write("\n")
            helper.stdin.flush()
            if not helper.stdout.readline():
                raise PermissionError("the kernel gave no rights in the new user namespace")  # noqa: EM101, TRY003
            held += [os.open(own / "ns" / name, os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net")[: 1 + network]]
        except OSError:
            for descriptor in held:
                os.close(descriptor)
            raise
        else:
            return held
        finally:
            helper.kill()


def path_of(descriptor: int) -> Path:
    """Return a path by which other processes of this user open a file that this process holds."""
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def _in_thread(act: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[OSError] = []

    def run() -> None:
        try:
            results.append(act())
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: object) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(what))


NAMESPACE = "network namespace"
USER_NAMESPACE = "network namespace within a user namespace"
NO_NAMESPACE = (
    "no network namespace can be made; run steptime as root, or let users make namespaces "
    "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
)
_CONTAINER_START_S = 600.0
"""The first start of a container may unpack its image."""
PLAN = "network.json"
"""In the run folder: what a process must know to enter the launch's network."""
ENTRY = str(Path(__file__).with_name("namespace_entry.py"))


@cache
def isolation_kind() -> str | None:
    """Return what can keep others out of a launch's sockets here: ``NAMESPACE``, ``USER_NAMESPACE`` or None."""
    if not sys.platform.startswith("linux"):
        return None
    for kind in (NAMESPACE, USER_NAMESPACE):
        with contextlib.suppress(OSError):
            for descriptor in _make(kind):
                os.close(descriptor)
            return kind
    return None


def isolation_on_this_host(wanted: Isolation) -> str | None:
    """Return what keeps others out of the sockets of a launch on this host; None if nothing does."""
    return None if wanted == "off" else isolation_kind()


def entry_of(request: Request) -> tuple[str, ...]:
    """Return the command that enters the network of a launch from its run folder; empty where it has none."""
    return (sys.executable, "-I", "-S", ENTRY, PLAN, "0") if isolation_on_this_host(request.isolation) else ()


def starts_in_private_network(request: Request) -> bool:
    """Whether the container of a launch, if it has one, starts within a private network.

    A program that makes user namespaces itself, as podman without root, cannot do so within one of a single user.
    """
    kind = isolation_kind()
    if not request.container or kind is None or shutil.which(request.container[0]) is None:
        return True  # the launch names what it lacks
    return _starts_in(kind, request.container, str(request.interpreter))


@cache
def _starts_in(kind: str, container: tuple[str, ...], interpreter: str) -> bool:
    with temporary_folder("namespace") as folder, made_network(kind, folder):
        entry = (sys.executable, "-I", "-S", ENTRY, str(folder / PLAN), "0")
        with contextlib.suppress(subprocess.TimeoutExpired):
            tried = subprocess.run(
                [*entry, *container, interpreter, "-c", ""],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_CONTAINER_START_S,
            )
            return tried.returncode == 0
    return False


DRIVER, UNIFIED_MEMORY = Path("/proc/driver/nvidia"), Path("/dev/nvidia-uvm")
MAKE_DEVICE_FILE = "nvidia-modprobe -u -c=0"


def require_device_file(kind: str | None) -> None:
    """Make the device file of CUDA's unified memory, where a launch is to run in a user namespace and cannot.

    CUDA makes it by a program of the driver that runs as root, whoever starts it; within a user namespace it does not.

    Raises LaunchError where it cannot be made.
    """
    if kind != USER_NAMESPACE or not DRIVER.exists() or UNIFIED_MEMORY.exists():
        return
    program, *arguments = MAKE_DEVICE_FILE.split()
    if found := shutil.which(program):
        subprocess.run([found, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not UNIFIED_MEMORY.exists():
        message = (
            f"CUDA needs {UNIFIED_MEMORY}, which is missing, and which nothing in a {kind} can make; make it once "
            f"after each start of the machine (sudo {MAKE_DEVICE_FILE}), or set isolation: off"
        )
        raise LaunchError(message)


@contextlib.contextmanager
def made_network(kind: str, folder: Path) -> Iterator[None]:
    """Make the network of one launch, and write into its run folder how to enter it.

    Raises LaunchError when the kernel refuses.
    """
    try:
        *users, network = held = _make(kind)
    except OSError as error:
        message = f"no private network could be made for the launch: {error}"
        raise LaunchError(message) from error
    try:
        table = folder.absolute() / "hosts"
        # Libraries look their own host's name up, whose address lies in the network outside.
        names = f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n::ffff:127.0.0.1 localhost\n"
        PlainFolder(table.parent).put(table, names.encode())
        host: dict[str, object] = {
            "name": None,
            "namespace": str(path_of(network)),
            "users": str(path_of(users[0])) if users else None,
            "group": None,
            "variables": {},
        }
        plan = {"hosts_file": str(table), "users_first": True, "hosts": [host]}
        PlainFolder(folder).put(folder / PLAN, json.dumps(plan, indent=1).encode())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


def _make(kind: str) -> list[int]:
    if kind == NAMESPACE:
        return [make_network()]
    return make_users(f"{os.geteuid()} {os.geteuid()} 1\n", f"{os.getegid()} {os.getegid()} 1\n", network=True)
