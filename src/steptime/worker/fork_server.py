"""A process that imports a framework once, and forks a copy of itself for each process of a launch.

Run as ``python fork_server.py DESCRIPTOR CORES SOURCE MODULE…``: the descriptor is that of a socket that listens
already, the cores those that the import sees (``0,1``; empty: all), as many as a worker of a launch has; the modules
are those of the framework, and of steptime, which alone is taken from the folder SOURCE. A copy computes what a freshly
started process computes, and nothing that one copy changes reaches another one.
"""

import array
import contextlib
import ctypes
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any, Dict, List

_DIE_WITH_PARENT = 1
_NAMESPACES = (("user", 0x10000000), ("net", 0x40000000), ("mnt", 0x00020000))
"""Of the process that asks, in the order in which they are entered: rights in the first allow the others."""
_OWN_FOLDER = 0x00000200
"""What a thread must not share with others when it enters a namespace of mounts."""
_STREAMS = 3
_MOST_BYTES = 1 << 20
NOT_THERE = 75
"""Exit code of a copy that could not enter the namespaces of the process that asked."""
FORKED = ".forked"
"""Ends the name of the file in the run folder that has the process id of a copy."""


_IMPORTED = {"files": "0"}
"""The bytes of files in memory behind the import: libraries, of which a copy has only what it uses again."""


def serve(listener: socket.socket) -> None:
    """Fork a copy for everybody who connects, until the process that started this one dies."""
    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakeup)
    running = {}  # type: Dict[Any, int]
    while True:
        waited = [listener, ended] + list(running)  # type: List[Any]
        for ready in select.select(waited, [], [])[0]:
            if ready is listener:
                connection = listener.accept()[0]
                process = start(connection)
                if process:
                    running[connection] = process
            elif ready == ended:
                os.read(ended, 4096)
            else:  # whoever waited for this copy was ended, and means the copy and what that has started
                process = running.pop(ready)
                os.kill(process, signal.SIGKILL)  # it may have no group of its own yet
                end_group(process)
                ready.close()
        answer(running)


def import_all(source: str, modules: List[str]) -> None:
    """Import the modules, and steptime from the folder ``source``; of ``module:function`` call the function."""
    finder = _Steptime(source)
    sys.meta_path.insert(0, finder)
    for entry in modules:
        name, _, function = entry.partition(":")
        module = importlib.import_module(name)
        if function:
            getattr(module, function)()
    sys.meta_path.remove(finder)


class _Steptime(MetaPathFinder):
    """Finds steptime in a folder, and nothing else: that of an installed one has other builds of frameworks, too."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return where steptime itself is; modules in it are found by that."""
        return PathFinder.find_spec(name, [self._folder], target) if name == "steptime" and path is None else None


def start(connection: socket.socket) -> int:
    """Fork a copy that becomes what ``connection`` asks for; return its process id, 0 where nothing whole was asked."""
    sizes = array.array("i", [0] * (_STREAMS + len(_NAMESPACES)))
    try:
        message, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(len(sizes) * sizes.itemsize))
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        rest = int.from_bytes(message, "big")
        text = b""
        while len(text) < rest <= _MOST_BYTES:
            part = connection.recv(rest - len(text))
            if not part:
                break
            text += part
        wanted = json.loads(text.decode())
    except (OSError, ValueError):  # it was ended while it asked
        connection.close()
        return 0
    process = os.fork()
    if process:
        for descriptor in descriptors:
            os.close(descriptor)
        return process
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    for number, descriptor in enumerate(descriptors[:_STREAMS]):
        os.dup2(descriptor, number)
    try:
        enter(list(descriptors[_STREAMS:]))
    except OSError:
        os._exit(NOT_THERE)
    become(wanted)
    os._exit(0)


def enter(namespaces: List[int]) -> None:
    """Enter the namespaces of the process that asked, those that are not this one's already.

    A library may begin threads in every copy. They keep this process's namespaces, so that another copy goes on.

    Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 and libc.unshare(_OWN_FOLDER):
        raise OSError(ctypes.get_errno(), "unshare")
    entered = False
    for (name, flag), descriptor in zip(_NAMESPACES, namespaces):
        if os.fstat(descriptor).st_ino != os.stat("/proc/self/ns/" + name).st_ino:
            entered = True
            if libc.setns(descriptor, flag):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), "setns of " + name)
        os.close(descriptor)
    if entered and threads > 1:
        go_on_in_a_copy()


def go_on_in_a_copy() -> None:
    """Return in a copy of this process, which awaits it and ends as it ends."""
    process = os.fork()
    if not process:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        return
    status = os.waitpid(process, 0)[1]
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):  # SIGKILL cannot be ignored
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def become(wanted: Dict[str, Any]) -> None:
    """Run the script of a started Python in this process, with its folder, arguments and variables."""
    os.chdir(wanted["folder"])
    if "multiprocessing.process" in sys.modules:  # it finds the script of this process for helpers that are not forks
        vars(sys.modules["multiprocessing.process"])["ORIGINAL_DIR"] = wanted["folder"]
    os.environ.clear()
    os.environ.update(wanted["environment"], STEPTIME_IMPORTED_FILES=_IMPORTED["files"])
    random.seed()  # copies of one state would draw the same numbers where an adapter forgets to seed
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.argv = wanted["argv"]
    sys.path[0] = wanted["folder"]
    # The run folder has a copy of its own of what the import took from the installed steptime.
    own = [name for name in sys.modules if name.split(".")[0] == "steptime"]
    for name in own + wanted["again"]:
        sys.modules.pop(name, None)
    with open("%s-%s%s" % (os.environ["STEPTIME_ROLE"], os.environ.get("STEPTIME_RANK", "0"), FORKED), "w") as file:
        file.write(str(os.getpid()))
    runpy.run_path(sys.argv[0], run_name="__main__")


def end_group(process: int) -> None:
    """Kill the group of a copy: the helpers of its loader, if it left any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def answer(running: Dict[Any, int]) -> None:
    """Send everybody whose copy has ended how it ended."""
    waiting = {process: connection for connection, process in running.items()}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except OSError:
            return
        if not process:
            return
        end_group(process)
        connection = waiting.get(process)
        if connection is not None:
            del running[connection]
            with contextlib.suppress(OSError):
                connection.sendall(status.to_bytes(4, "big"))
            connection.close()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=int(sys.argv[1]))
    usable = os.sched_getaffinity(0)
    if sys.argv[2]:
        os.sched_setaffinity(0, map(int, sys.argv[2].split(",")))  # libraries count cores when they are loaded
    import_all(sys.argv[3], sys.argv[4:])
    os.sched_setaffinity(0, usable)  # a copy has those of its own launch
    with open("/proc/self/status") as status:
        _IMPORTED["files"] = next((str(int(line.split()[1]) * 1024) for line in status if "RssFile:" in line), "0")
    serve(listening)
