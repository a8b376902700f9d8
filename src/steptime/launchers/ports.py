"""Free TCP ports for a launch."""

import random
import socket

from steptime.errors import LaunchError

# Below the range from which the kernel takes ports for outgoing connections: a port found free here is not taken
# by somebody's connection before the framework listens on it.
_FIRST, _LAST = 15_000, 30_000
_ATTEMPTS = 200


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different ports on which nobody listens now.

    All are held while the others are sought, so that none is given twice. Raises LaunchError when too few are free.
    """
    chosen = random.SystemRandom()
    held: list[socket.socket] = []
    try:
        for _ in range(_ATTEMPTS + count):
            if len(held) == count:
                break
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                candidate.bind((host, chosen.randint(_FIRST, _LAST)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        if len(held) < count:
            message = f"found only {len(held)} of {count} free ports between {_FIRST} and {_LAST} on {host}"
            raise LaunchError(message)
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
