"""``python ping.py serve ADDRESS`` and ``… ask BYTES ADDRESS …``: the two ends of the measurement of paths.

The asking end prints, for each address, the times of its short and of its long exchanges as JSON.
"""

import json
import signal
import socket
import sys
import time

PORT = 15_007
SHORT, LONG = 60, 3
"""How many exchanges of each kind."""
_HEADER = 8
_LIMIT_S = 240
"""Nobody may be there to end a program on another host."""


def serve(address: str) -> None:
    """Answer every message of one asker with one byte; end when it goes, or after a while."""
    signal.alarm(_LIMIT_S)
    with socket.create_server((address, PORT)) as listener:
        print("ready", flush=True)  # noqa: T201 - the launcher waits for it
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while header := connection.recv(_HEADER, socket.MSG_WAITALL):
                _receive(connection, int.from_bytes(header, "big"))
                connection.sendall(b"!")


def _receive(connection: socket.socket, count: int) -> None:
    buffer = memoryview(bytearray(min(count, 1 << 20)))
    while count:
        received = connection.recv_into(buffer, min(count, len(buffer)))
        if not received:
            message = "the asker has gone in the middle of a message"
            raise ConnectionError(message)
        count -= received


def ask(address: str, count: int) -> dict[str, list[float]]:
    """Return the seconds of exchanges of 1 byte and of ``count`` bytes, each answered by one byte."""
    with socket.create_connection((address, PORT), timeout=60.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _exchange(connection, count)  # the connection's window opens
        return {
            "short_s": [_exchange(connection, 1) for _ in range(SHORT)],
            "long_s": [_exchange(connection, count) for _ in range(LONG)],
        }


def _exchange(connection: socket.socket, count: int) -> float:
    message = count.to_bytes(_HEADER, "big") + bytes(count)
    started = time.perf_counter()
    connection.sendall(message)
    if connection.recv(1) != b"!":
        error = "the other end has gone"
        raise ConnectionError(error)
    return time.perf_counter() - started


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(json.dumps([ask(address, int(sys.argv[2])) for address in sys.argv[3:]]))  # noqa: T201 - the launcher reads it
