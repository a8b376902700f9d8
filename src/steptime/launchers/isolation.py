"""The private network of a launch: a network namespace that holds its processes and a loopback interface, nothing else.

Frameworks trust whoever connects: servers read and write files for any caller, and calls are unpickled. In a namespace
of its own, a launch is out of reach for other users of the machine and for other machines. Nothing is left when the
last process of the launch has ended. Without root, the namespace belongs to a user namespace, in which everybody has
the same number as outside.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from steptime.errors import LaunchError
from steptime.launchers.namespaces import make_network, make_users, path_of
from steptime.launchers.request import Isolation, Request
from steptime.plain_file import PlainFolder

NAMESPACE = "network namespace"
USER_NAMESPACE = "network namespace within a user namespace"
NO_NAMESPACE = (
    "no network namespace can be made; run steptime as root, or let users make namespaces "
    "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
)
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
