"""A process that imports a framework once and forks a copy of itself for each worker that a test launches.

Run as ``python fork_server.py DESCRIPTOR CODE``: the descriptor is that of a socket that listens already, the code
imports the framework. It runs in the framework's environment: Python 3.6 and the standard library.
"""

import array
import contextlib
import ctypes
import json
import os
import runpy
import select
import signal
import socket
import sys


def main():
    """Serve until the process that started this one dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=int(sys.argv[1]))
    exec(sys.argv[2], {})  # noqa: S102 - the import of the framework
    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakeup)
    running = {}
    while True:
        for ready in select.select([listener, ended, *running], [], [])[0]:
            if ready is listener:
                connection = listener.accept()[0]
                running[connection] = start(connection)
            elif ready == ended:
                os.read(ended, 4096)
            else:  # whoever waited for this worker was ended, and means its worker and what that has started
                process = running.pop(ready)
                os.kill(process, signal.SIGKILL)  # it may have no group of its own yet
                end(process)
                ready.close()
        answer(running)


def start(connection):
    """Fork a worker that becomes what ``connection`` asks for, and return its process id."""
    message, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    outputs = array.array("i", ancillary[0][2])
    rest = int.from_bytes(message, "big")
    text = b""
    while len(text) < rest:
        text += connection.recv(rest - len(text))
    process = os.fork()
    if process:
        for descriptor in outputs:
            os.close(descriptor)
        return process
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, descriptor in enumerate(outputs):
        os.dup2(descriptor, number)
    become(json.loads(text.decode()))
    os._exit(0)


def become(wanted):
    """Run the script of a started Python in this process, with its folder, arguments and variables."""
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = wanted["argv"]
    sys.path[0] = wanted["folder"]
    own = [
        name for name in sys.modules if name.split(".")[0] == "steptime"
    ]  # of the checkout; a run folder has its own
    for name in own + wanted["again"]:
        del sys.modules[name]
    runpy.run_path(sys.argv[0], run_name="__main__")


def end(process):
    """Kill the group of a worker."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def answer(running):
    """Tell those who wait for workers how these ended."""
    waiting = {process: connection for connection, process in running.items()}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except OSError:
            return
        if not process:
            return
        end(process)  # the helpers of its loader, if it left any
        connection = waiting.get(process)
        if connection is not None:
            del running[connection]
            with contextlib.suppress(OSError):
                connection.sendall(status.to_bytes(4, "big"))
            connection.close()


if __name__ == "__main__":
    main()
