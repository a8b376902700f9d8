"""Lines of JSON between the coordinator and the processes that it coordinates.

The coordinator listens on a free port of its own and writes the address into the run folder, which all processes of a
launch share.
"""

import json
import os
import socket
import time

_POLL_S = 0.05
_MEETING_LIMIT_S = 300.0
_FILE = "coordinator.json"
RUNG = "rung "
"""Before the name of a rung, in what a worker asks for."""


class Line(object):
    """One connection; messages are anything that JSON can say, and None is what the dead say."""

    def __init__(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._incoming = connection.makefile("r", encoding="utf-8")

    def say(self, message):
        """Send one message; raises OSError when the other has gone."""
        self._connection.sendall((json.dumps(message) + "\n").encode("utf-8"))

    def hear(self):
        """Wait for the next message and return it; None when the other has gone."""
        try:
            line = self._incoming.readline()
        except OSError:
            return None
        return json.loads(line) if line else None


def listen(place):
    """Return a socket to accept connections on, once its address can be found."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind((place.root_host, 0))
    listening.listen(place.workers + place.servers)
    path = os.path.join(place.folder, _FILE)
    with open(path + ".partial", "w") as file:
        json.dump({"host": place.root_host, "port": listening.getsockname()[1]}, file)
    os.rename(path + ".partial", path)
    return listening


def call(place):
    """Return a ``Line`` to the coordinator, after having said who calls.

    Raises RuntimeError when there is no coordinator to be found.
    """
    path = os.path.join(place.folder, _FILE)
    deadline = time.monotonic() + _MEETING_LIMIT_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise RuntimeError("the coordinator has not said in %s where it listens" % path)
        time.sleep(_POLL_S)
    with open(path) as file:
        address = json.load(file)
    line = Line(socket.create_connection((address["host"], address["port"])))
    line.say({"role": place.role, "rank": place.rank})
    return line
