"""User namespaces, one per host: by them libraries that look for processes on the same machine tell hosts apart.

torch's remote procedure calls, for one, read the memory of a process on the same machine directly, whatever network it
is in, unless its user namespace differs. All users are mapped to themselves, so that nobody's files change hands.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_NEW_USERS = 0x10000000
_PROGRAM = f"import ctypes; print(ctypes.CDLL(None).unshare({_NEW_USERS}), flush=True); input()"


@contextlib.contextmanager
def made_users(count: int) -> Iterator[list[Path] | None]:
    """Make ``count`` user namespaces and yield what opens them; None where the kernel lets nobody make any.

    They exist as long as this process holds them, so that nothing is left when it is killed.
    """
    held: list[int] = []
    try:
        for _ in range(count):
            descriptor = _make()
            if descriptor is None:
                yield None
                return
            held.append(descriptor)
        yield [Path(f"/proc/{os.getpid()}/fd/{descriptor}") for descriptor in held]
    finally:
        for descriptor in held:
            os.close(descriptor)


def _make() -> int | None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as helper:
        try:
            assert helper.stdout is not None  # noqa: S101 - it was asked for
            if helper.stdout.readline().strip() != "0":
                return None
            own = Path(f"/proc/{helper.pid}")
            for name in ("uid_map", "gid_map"):
                (own / name).write_text(_same(Path("/proc/self", name).read_text()))
            return os.open(own / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        finally:
            helper.communicate("\n")


def _same(own_map: str) -> str:
    """Return the map that gives everybody whom this process knows the number that this process knows."""
    ranges = (line.split() for line in own_map.splitlines())
    return "".join(f"{first} {first} {count}\n" for first, _, count in ranges)
