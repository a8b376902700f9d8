"""How long the shortest message takes between two workers, over a plain socket and beside the framework.

A back end's latencies are counted in this unit. Emulated links are measured before a launch, too; here it is done
between the same processes, on the same cores, wherever they run.
"""

import socket
import time

_PINGS = 60
_LIMIT_S = 60.0


def ping(place, meeting):
    """Return the one-way seconds (half a round trip of one byte, median) between worker 0 and each other worker.

    All workers call it, and take turns; others than worker 0 return an empty list.
    """
    if place.workers == 1:
        return []
    if place.rank:
        address = meeting.from_first(None)
        with socket.create_connection(tuple(address), timeout=_LIMIT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(1):
                connection.sendall(b".")
        meeting.together()
        return []
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((place.root_host, 0))
        listener.listen(place.workers)
        listener.settimeout(_LIMIT_S)
        meeting.from_first(listener.getsockname()[:2])
        others = [listener.accept()[0] for _ in range(place.workers - 1)]
    found = []
    for other in others:
        with other:
            found.append(_half_round_trip(other))
    meeting.together()
    return found


def _half_round_trip(connection):
    connection.settimeout(_LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(_PINGS):
        started = time.monotonic()
        connection.sendall(b".")
        connection.recv(1)
        times.append(time.monotonic() - started)
    return sorted(times)[_PINGS // 2] / 2
