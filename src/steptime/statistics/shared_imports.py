"""Launches that are forks of one process, which has imported their framework: together they say as much as one launch.

A launch's logarithm is m = mu + S + e: S is what the process that has imported has of its own, such as its memory
layout, and e what a fork of it has. Launches of one import share S, so that their number narrows no interval of mu
beyond the spread of S. The mean of those of one import is one draw of S + mean(e), independent of other imports' draws:
Student's t over these means is exact where imports have as many launches each, whatever part of the spread is S. So
nothing is assumed of that part; one import alone shows as little of it as one launch does.
benchmarks/core/shared-imports.csv has the coverage.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import sqrt
from typing import Protocol

from steptime.statistics.launch_times import LaunchTimes


class ForkedLaunch(Protocol):
    """A launch that has the name of the import that it was forked from."""

    @property
    def shared_import(self) -> str | None: ...


def import_names(launches: Sequence[ForkedLaunch]) -> list[Hashable]:
    """Return of each launch the name of its import; of one that imported for itself its place, which no other has."""
    return [place if launch.shared_import is None else launch.shared_import for place, launch in enumerate(launches)]


def one_of_each_import(launches: Sequence[LaunchTimes]) -> list[LaunchTimes]:
    """Return a launch for each import: the mean of those that were forked from it, in the block of the first.

    Launches without a name of their import imported for themselves, and stay as they are.

    Args:
        launches: of one trial.
    """
    members: dict[Hashable, list[LaunchTimes]] = {}
    for name, launch in zip(import_names(launches), launches, strict=True):
        members.setdefault(name, []).append(launch)
    return [_mean_of(own) if len(own) > 1 else own[0] for own in members.values()]


def _mean_of(launches: Sequence[LaunchTimes]) -> LaunchTimes:
    count = len(launches)
    return replace(
        launches[0],
        log_mean=sum(each.log_mean for each in launches) / count,
        mean_error=sqrt(sum(each.mean_error**2 for each in launches)) / count,
        stall_error=sqrt(sum(each.stall_error**2 for each in launches)) / count,
    )
