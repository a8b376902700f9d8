"""``python ping.py serve ADDRESS`` and ``… ask BYTES``: the two ends of the measurement of paths.

The first line of standard input gives both a secret, which arguments would show to everybody. The serving end listens
on a free port, which it prints, and takes only the caller that proves to know the secret; the handshake is that of a
launch. The second line for the asking end holds the addresses and ports to call, as JSON; it prints, for each, the
times of its short and of its long exchanges as JSON. Later lines only say that the launcher lives: where they cease,
the program ends. Only the standard library is imported, and the handshake.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time

if not __package__:  # started by its path; behind the standard library, which nothing installed may replace
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120

from steptime.worker.handshake import accept_peers, connect_peer, open_listener

SHORT, LONG = 60, 3
"""How many exchanges of each kind."""
_HEADER = 8
_LIMIT_S = 240
BEAT_S, _SILENCE_S = 1.0, 10.0
"""How often the launcher sends a heartbeat, and after how long it is taken for dead."""
_CONNECT_S = 30.0
_ASKER = "asker"


def serve(address: str, secret: bytes) -> None:
    """Answer every message of the one asker that knows the secret with one byte; end when it goes, or after a while."""
    signal.alarm(_LIMIT_S)
    listener = open_listener(address)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the launcher waits for it
    with accept_peers(listener, secret, [_ASKER], _LIMIT_S)[_ASKER] as connection:
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


def ask(address: tuple[str, int], count: int, secret: bytes) -> dict[str, list[float]]:
    """Return the seconds of exchanges of 1 byte and of ``count`` bytes, each answered by one byte.

    Raises RuntimeError where no process at ``address`` proves to know the secret.
    """
    with connect_peer(lambda: address, secret, _ASKER, _CONNECT_S) as connection:
        connection.settimeout(_CONNECT_S)
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


def end_with_launcher(source: int) -> None:
    """End this process when the line from the launcher is closed or silent; no one else ends it on another host."""
    while select.select([source], [], [], _SILENCE_S)[0] and os.read(source, 1 << 12):
        pass
    os._exit(1)


def main() -> None:
    """Serve or ask, as the arguments say."""
    secret = bytes.fromhex(sys.stdin.readline())
    asked = "" if sys.argv[1] == "serve" else sys.stdin.readline()
    threading.Thread(target=end_with_launcher, args=[sys.stdin.fileno()], daemon=True).start()
    if sys.argv[1] == "serve":
        serve(sys.argv[2], secret)
        return
    signal.alarm(_LIMIT_S)
    targets = [(address, port) for address, port in json.loads(asked)]
    print(json.dumps([ask(target, int(sys.argv[2]), secret) for target in targets]))  # noqa: T201 - the launcher reads it


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))  # the launcher shows it to the user
