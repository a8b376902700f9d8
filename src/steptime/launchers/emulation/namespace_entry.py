"""``python namespace_entry.py PLAN HOST PROGRAM …``: become a process of an emulated host, and then another program.

``HOST`` is a number. With ``+`` before it, the program keeps the right to enter other hosts, as an mpiexec must.

The plan is a file that the launcher wrote. Only the standard library is imported, and no process stays in between: the
process that the launcher starts is the one that it watches and ends.
"""

import ctypes
import json
import os
import socket
import sys

_NEW_MOUNTS, _NEW_NAMES, _NEW_USERS, _NEW_NETWORK = 0x00020000, 0x04000000, 0x10000000, 0x40000000
_BIND, _PRIVATE, _RECURSIVE = 4096, 1 << 18, 16384


def enter(plan_path: str, index: int, *, leading: bool) -> None:
    """Make this process one of host ``index``: variables, control group, network, names and users.

    Users come last, since who is in another user namespace may not do all that comes before; ``leading`` leaves them
    out.

    Raises OSError when the kernel refuses, as it does to others than root.
    """
    with open(plan_path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes longer to import than all the rest
        plan = json.load(file)
    host = plan["hosts"][index]
    libc = ctypes.CDLL(None, use_errno=True)
    if host["group"]:
        with open(os.path.join(host["group"], "cgroup.procs"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123
            file.write(str(os.getpid()))
    os.environ.update(host["variables"])
    users = os.open(host["users"], os.O_RDONLY | os.O_CLOEXEC) if host["users"] and not leading else None
    network = os.open(host["namespace"], os.O_RDONLY | os.O_CLOEXEC)
    _checked(libc.setns(network, _NEW_NETWORK), "setns")
    _checked(libc.unshare(_NEW_NAMES | _NEW_MOUNTS), "unshare")
    socket.sethostname(host["name"])
    _checked(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "mount")
    _checked(libc.mount(plan["hosts_file"].encode(), b"/etc/hosts", None, _BIND, None), "mount of /etc/hosts")
    if users is not None:
        _checked(libc.setns(users, _NEW_USERS), "setns of users")


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        message = f"{what} was refused: {os.strerror(number)}"
        raise OSError(number, message)


if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120
    from steptime.worker.tether import die_with_parent

    enter(sys.argv[1], int(sys.argv[2].lstrip("+")), leading=sys.argv[2].startswith("+"))
    die_with_parent()
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted
