"""What a fault may leave behind or take away: processes, and lines of records."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FLAGS_AFTER_STATE = 5
"""Of the fields of /proc/PID/stat; see proc(5)."""
_IS_EXITING = 0x4
"""PF_EXITING of the kernel."""


@dataclass(frozen=True)
class Found:
    """A process of this machine, in whichever namespaces it runs."""

    pid: int
    """Outside of all namespaces."""
    arguments: tuple[str, ...]
    variables: dict[str, str]
    pid_namespace: int
    parent: int

    def __str__(self) -> str:
        """Return its number and the beginning of its command line."""
        return f"{self.pid}: {' '.join(self.arguments)[:120]}"


def living_processes() -> Iterator[Found]:
    """Yield the processes that run, those that have ended and wait for their parents (zombies) left out."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state in "ZX":
                continue
            lines = (path / "environ").read_bytes().decode(errors="replace").split("\0")
            arguments = tuple(os.fsdecode((path / "cmdline").read_bytes()).split("\0")[:-1])
            namespace = (path / "ns" / "pid").stat().st_ino
        except OSError:  # it has ended meanwhile
            continue
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        yield Found(int(path.name), arguments, variables, namespace, int(parent))


def is_alive(found: Found) -> bool:
    """Say whether a process still runs, and is not on its way to its end, where nothing can kill it any more."""
    try:
        state, *fields = Path(f"/proc/{found.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state not in "ZX" and not int(fields[_FLAGS_AFTER_STATE]) & _IS_EXITING


def lines_of_records(results: Path) -> Counter[tuple[str, str]]:
    """Return every whole line of every record file of a results folder, with the path of the file."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted([*results.glob("*.jsonl"), *results.glob("trials/*/*.jsonl")]):
        found.update((str(path), line) for line in path.read_text().split("\n")[:-1])
    return found


def write_plugin(folder: Path, name: str) -> None:
    """Write the metadata by which steptime finds the framework whose package ``folder`` will hold under ``name``."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[steptime.frameworks]\n{name} = {name}\n")
