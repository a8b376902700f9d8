"""Of an attached run, what the program that started it knows: ``attached.json`` of its results folder."""

from typing import Annotated

from pydantic import Field

from steptime.measurements.record_fields import Quantity, StoredObject

Nanoseconds = Annotated[int, Field(ge=-(2**62), le=2**62)]


class AttachedHeader(StoredObject):
    """The command and its time."""

    command: list[str]
    started_at: str
    """UTC, ISO 8601."""
    boot: str
    """Processes with the same one share the monotonic clock, on which the command began and ended."""
    begin_ns: Nanoseconds
    end_ns: Nanoseconds | None = None
    """None while it runs, and where steptime was killed."""
    wall_minus_monotonic_ns: Nanoseconds
    """The distance of the two clocks of the host."""
    exit_code: int | None = None
    """As a shell shows it."""
    not_attached: str | None = None
    """Why no process wrote anything."""
    noise: dict[str, Quantity | None] = Field(default_factory=dict)
    """What else the machine did: see measurements/noise.py."""
    flags: list[str] = Field(default_factory=list)
    """What of that a reader must know."""
