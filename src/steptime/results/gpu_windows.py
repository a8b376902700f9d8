"""What the GPUs of a host did in stretches of an attached run: the lines of a file that steptime's own process writes.

``gpus-HOST-PID.txt`` lies beside the records of the user's processes. A stretch grows with the run, so that a day of it
has a few hundred lines. Without a driver the only line names the reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from steptime.results.stored_record import STRICT, Bytes, Count, Name, Nanoseconds, Quantity

RECORDS = "attached"
"""The folder with the files of the processes of a user's own command, in a results folder."""
WRITTEN = "gpus-"
"""What names of these files begin with."""
OWN, OTHER, UNSEEN = "own", "other", "unseen"
"""Of a process on a GPU: the run started it, or not; or this machine has no process of that number."""


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU during a stretch."""

    __pydantic_config__ = STRICT

    pid: Count
    whose: Name
    """``own``, ``other`` or ``unseen``."""
    name: Name = ""
    memory: Bytes | None = None
    """The most that the driver names."""
    looks: Count = 0
    """In which it was there."""


@dataclass(frozen=True)
class GpuWindow:
    """One GPU in one stretch: means over looks, and the most of memory."""

    __pydantic_config__ = STRICT

    host: Name
    boot: Name
    begin_ns: Nanoseconds
    end_ns: Nanoseconds
    index: Count
    looks: Count
    name: Name = ""
    uuid: Name | None = None
    busy: Quantity | None = None
    """Share of the driver's sampling periods in which a kernel was at work."""
    power_w: Quantity | None = None
    """By the counter of energy where the driver has one."""
    limit_w: Quantity | None = None
    sm_hz: Quantity | None = None
    highest_sm_hz: Quantity | None = None
    held_looks: Count | None = None
    """Looks in which anything held its clocks back; None if the driver gives no reasons."""
    held_by: dict[Name, Count] = field(default_factory=dict)
    """By the cause: ``power``, ``heat``, ``hardware``."""
    used: Bytes | None = None
    """Memory in use by anybody."""
    memory: Bytes | None = None
    """All that it has."""
    processes: Annotated[list[GpuProcess], Field(max_length=1000)] | None = None
    """None if the driver does not list them."""


@dataclass(frozen=True)
class NoGpus:
    """Why a host has no such lines."""

    __pydantic_config__ = STRICT

    host: Name
    boot: Name
    reason: Name


_FORMS: tuple[TypeAdapter[GpuWindow], TypeAdapter[NoGpus]] = (TypeAdapter(GpuWindow), TypeAdapter(NoGpus))


def read_windows(text: bytes) -> Iterator[GpuWindow | NoGpus]:
    """Yield what the lines of a file hold; one that was cut, or is of another form, is left out."""
    for line in text.splitlines():
        for form in _FORMS:
            try:
                yield form.validate_json(line)
            except ValidationError:
                continue
            break
