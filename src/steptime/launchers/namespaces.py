"""Namespaces of the kernel: made without changing this process, and held by open files until the last user has gone."""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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
