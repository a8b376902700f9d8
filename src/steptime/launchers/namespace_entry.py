"""``python namespace_entry.py PLAN HOST PROGRAM …``: enter the namespaces of a host, and become another program.

A host is an emulated one, or what a launch has for itself of this machine: a network of its own.

``HOST`` is a number. With ``+`` before it, the program keeps the right to enter other hosts, as an mpiexec must.

The plan is a file that the launcher wrote. Only the standard library is imported.

Without ``+`` no process stays in between: the process that the launcher starts is the one that it watches and ends.
With it, this process stays, and awaits all that the program starts: the daemons of an mpiexec outlive it, and the
processor time of a process that no process awaits is lost, so that workers on other hosts would count as
load of other processes.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time

_NEW_MOUNTS, _NEW_NAMES, _NEW_USERS, _NEW_NETWORK = 0x00020000, 0x04000000, 0x10000000, 0x40000000
_BIND, _DEPENDENT, _RECURSIVE = 4096, 1 << 19, 16384
_SUBREAPER = 36
_DAEMONS_GRACE_S = 2.0
"""So long after the end of the program its daemons are awaited."""
_POLL_S = 0.01


def enter(plan_path: str, index: int, *, leading: bool) -> None:
    """Make this process one of host ``index``: variables, control group, network, names and users.

    Users come last, since who is in another user namespace may not do all that comes before, or first
    (``users_first``), where the other namespaces belong to them; ``leading`` leaves them out.

    Raises OSError when the kernel refuses.
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
    if users is not None and plan.get("users_first"):
        _checked(libc.setns(users, _NEW_USERS), "setns of users")
    _checked(libc.setns(network, _NEW_NETWORK), "setns")
    if host["name"]:
        _checked(libc.unshare(_NEW_NAMES), "unshare of names")
        socket.sethostname(host["name"])
    _replace_hosts_file(libc, plan["hosts_file"], must=bool(host["name"]))
    if users is not None and not plan.get("users_first"):
        _checked(libc.setns(users, _NEW_USERS), "setns of users")


def _replace_hosts_file(libc: ctypes.CDLL, path: str, *, must: bool) -> None:
    """Show this process, and what it starts, ``path`` as ``/etc/hosts``."""
    try:
        _checked(libc.unshare(_NEW_MOUNTS), "unshare of mounts")
        _checked(libc.mount(b"none", b"/", None, _RECURSIVE | _DEPENDENT, None), "mount")
        _checked(libc.mount(path.encode(), b"/etc/hosts", None, _BIND, None), "mount of /etc/hosts")
    except OSError:
        if must:
            raise


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        message = f"{what} was refused: {os.strerror(number)}"
        raise OSError(number, message)


def _await_all(program: int) -> None:
    """Wait for a child and for what it leaves behind, and end as the child did."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it reaches the whole group, in which an mpiexec ends its workers
    ended: int | None = None
    deadline = float("inf")
    with contextlib.suppress(ChildProcessError):  # there is none any more
        while time.monotonic() < deadline:
            pid, status = os.waitpid(-1, os.WNOHANG if ended is not None else 0)
            if pid == program:
                ended, deadline = status, time.monotonic() + _DAEMONS_GRACE_S
            elif not pid:
                time.sleep(_POLL_S)
    code = os.waitstatus_to_exitcode(ended or 0)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be ignored
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 2)))  # noqa: PTH100, PTH118, PTH120
    from steptime.worker.tether import die_with_parent

    is_leading = sys.argv[2].startswith("+")
    enter(sys.argv[1], int(sys.argv[2].lstrip("+")), leading=is_leading)
    die_with_parent()
    if is_leading:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        if child := os.fork():
            _await_all(child)
        die_with_parent()
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted
