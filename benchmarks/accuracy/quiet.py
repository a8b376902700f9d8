"""Which launches count: those that had the processors to themselves, by what the machine said, never by their times."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from steptime.flags import FOREIGN_CORES

LIMITS = {"foreign_cpu_cores": FOREIGN_CORES, "steal_share": 0.03}
"""Cores that other processes used, and the share of time that a virtual machine wanted to run and could not.

A median over steps hardly notices three hundredths of a launch; a third of one, as neighbours of a virtual machine take
at times, doubles the steps of a small network. Chosen once, when a first table of PyTorch had been seen.
"""


class Recorded(Protocol):
    """A launch of any kind, as the store has it."""

    @property
    def status(self) -> str:
        """How it ended."""

    @property
    def noise(self) -> Mapping[str, float | None]:
        """What else the machine did meanwhile."""


Each = TypeVar("Each", bound=Recorded)


def quiet(launches: Sequence[Each]) -> list[Each]:
    """Return the launches that ended well and were alone."""
    return [
        each for each in _ended(launches) if all((each.noise.get(name) or 0) <= most for name, most in LIMITS.items())
    ]


def all_quiet(launches: Sequence[Each]) -> bool:
    """Say whether every launch that ended well was alone."""
    return len(quiet(launches)) == len(_ended(launches))


def _ended(launches: Sequence[Each]) -> list[Each]:
    return [each for each in launches if each.status == "ok"]
