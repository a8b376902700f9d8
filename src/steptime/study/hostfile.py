"""Hostfiles: the hosts that a file names, and how many workers each takes (its slots).

Forms that are read, one host a line, with comments behind ``#``:

- Open MPI, PRRTE, DeepSpeed, Horovod and Kubeflow's MPIJob: ``host``, ``host slots=4``, ``host slots=4 max_slots=8``
- MPICH's Hydra and Intel MPI: ``host:4``

A host that several lines name has the sum of their slots; a line without a number is one slot. ``n[0-3]`` are four.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from steptime.errors import FileError
from steptime.file_name import host_name_mistake
from steptime.study.host_lists import MOST_HOSTS, expanded_hosts
from steptime.user_file import read_user_text

MOST_BYTES = 2**20
MOST_SLOTS = 65_536
_LINE = re.compile(r"(?P<host>[^\s:=]+)(?::(?P<count>\S*))?(?P<settings>(?:\s+\S+)*)")
_EQUALS = re.compile(r"\s*=\s*")
_SLOTS = ("slots", "cpu", "count")
"""Open MPI has all three for the same thing."""
_LIMITS = ("max_slots", "max-slots")
_USERS = ("user", "username")
_TAKEN = "HOST, HOST slots=4, HOST slots=4 max_slots=8 and HOST:4 are read"


def is_hostfile(text: str) -> bool:
    """Whether a text that is meant for hosts names a file: it holds a slash."""
    return "/" in text


def read_hostfile(path: Path) -> dict[str, int]:
    """Return the slots of each host by its name, in the order of the file.

    Raises FileError, with the line where one is wrong.
    """
    slots: dict[str, int] = {}
    for number, line in enumerate(read_user_text(path, MOST_BYTES).splitlines(), 1):
        try:
            for host, count in _entries(line.partition("#")[0].strip()):
                slots[host] = slots.get(host, 0) + count
        except ValueError as error:
            raise FileError(path, str(error), number) from error
        if len(slots) > MOST_HOSTS:
            raise FileError(path, f"it names more than the {MOST_HOSTS} hosts that a study may have", number)
    if not slots:
        raise FileError(path, f"it names no hosts; {_TAKEN}")
    return slots


def _entries(line: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts of a line with their slots; raises ValueError with what is wrong."""
    if not line:
        return
    match = _LINE.fullmatch(_EQUALS.sub("=", line))
    if match is None:
        message = f"{line!r} is not a host; {_TAKEN}"
        raise ValueError(message)
    settings = _settings(match["settings"].split())
    user = next((settings[key] for key in _USERS if key in settings), None)
    counts = {key: slot_count(settings[key]) for key in (*_SLOTS, *_LIMITS) if key in settings}
    if match["count"] is not None:
        counts["slots"] = slot_count(match["count"])
    limits = [counts[key] for key in _LIMITS if key in counts]
    count = min([next((counts[key] for key in _SLOTS if key in counts), 1), *limits])
    for name in expanded_hosts(match["host"]):
        host = f"{user}@{name}" if user else name
        if mistake := host_name_mistake(host):
            raise ValueError(mistake)
        yield host, count


def _settings(words: Iterable[str]) -> dict[str, str]:
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in (*_SLOTS, *_LIMITS, *_USERS):
            message = f"{word!r} is not understood after a host; {_TAKEN}"
            raise ValueError(message)
        settings[key] = value
    return settings


def slot_count(text: str) -> int:
    """Return a number of slots; raises ValueError for what is none."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= MOST_SLOTS:
        message = f"{text!r} is not a number of slots, which is 1 to {MOST_SLOTS}"
        raise ValueError(message)
    return int(text)


def common_slots(slots: Mapping[str, int], source: object) -> int:
    """Return how many slots every host has; raises ValueError where hosts differ, since workers fill hosts evenly."""
    most, fewest = max(slots, key=slots.__getitem__), min(slots, key=slots.__getitem__)
    if slots[most] != slots[fewest]:
        message = (
            f"{source} gives {most} {slots[most]} slots and {fewest} {slots[fewest]}, and workers fill hosts evenly; "
            f"write how many each takes, as hosts: {{workers_per_host: {slots[fewest]}}}"
        )
        raise ValueError(message)
    return slots[most]


_SHOWN_HOSTS = 5


def unused_slots(slots: Mapping[str, int], source: object) -> str:
    """Return the sentence that names the hosts of different slots, and how many workers each takes."""
    fewest = min(slots.values())
    by_count: dict[int, list[str]] = {}
    for host, count in slots.items():
        by_count.setdefault(count, []).append(host)
    parts = []
    for count, hosts in sorted(by_count.items()):
        more = f" and {len(hosts) - _SHOWN_HOSTS} more" if len(hosts) > _SHOWN_HOSTS else ""
        parts.append(f"{', '.join(hosts[:_SHOWN_HOSTS])}{more}: {count}")
    return (
        f"{source} gives hosts different slots ({'; '.join(parts)}); workers fill hosts evenly, so that each takes "
        f"{fewest} of the {sum(slots.values())}; hosts.workers_per_host sets another number"
    )
