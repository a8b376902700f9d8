"""How the workers that a sweep forecasts share the cores of machines, by where those that it ran did.

A command that put all its workers on one machine, however many, is taken to put more there too; one that filled
machines with as many each, to fill further ones like these. Where the cores of a machine suffice for every number of
workers that is forecast, or are not known, nothing is taken of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from steptime.curves.curve import Setup
from steptime.model.shared_cores import MachineCores
from steptime.scaling.swept_runs import SweptRuns, WorkersOnCores


@dataclass(frozen=True)
class CrowdedCores:
    """What a forecast takes of cores."""

    shared: MachineCores | None
    """None if cores suffice, or are not known."""
    workers_of_machine: float
    """At most; infinite where all share one."""
    sentence: str | None
    """For the reader; None if cores suffice."""

    def apply(self, setup: Setup) -> Setup:
        """Return a set-up of workers that share these cores."""
        if self.shared is None:
            return setup
        return replace(setup, shared_cores=self.shared, assumed_host_size=self.workers_of_machine)


_SUFFICIENT = CrowdedCores(None, inf, None)


def crowded_cores(swept: Sequence[SweptRuns], most: int) -> CrowdedCores:
    """Return how up to ``most`` workers share cores; the runs must be of one curve, the fewest workers first."""
    known = [runs.on_cores for runs in swept if runs.on_cores is not None]
    if len(known) < len(swept):  # on devices
        return _SUFFICIENT
    size = _workers_of_machine([runs.workers for runs in swept], known)
    busy = [place.busy_threads for place in known if place.busy_threads is not None]
    cores = known[-1].cores
    if cores is None or not busy or size is None:
        return CrowdedCores(None, inf, _unknown(cores, busy))
    shared = MachineCores(cores, max(busy), known[-1].hardware_threads)
    together = min(float(most), size)
    if shared.stretch(np.array([together]))[0] == 1.0:
        return _SUFFICIENT
    kept = "every worker stays on one machine" if size == inf else f"a machine holds {size:.0f} workers"
    return CrowdedCores(shared, size, f"{kept}, as measured; {shared.sentence(int(together))}")


def _workers_of_machine(counts: Sequence[int], places: Sequence[WorkersOnCores]) -> float | None:
    """Return how many workers a machine holds; None if the runs do not agree on it."""
    if all(place.machines == 1 for place in places):
        return inf
    size = max(place.most for place in places)
    agree = all(place.machines == ceil(count / size) for count, place in zip(counts, places, strict=True))
    return float(size) if agree else None


def _unknown(cores: float | None, busy: Sequence[float]) -> str:
    """Return what is missing, and that nothing is taken of cores."""
    if cores is None:
        missing = "how many cores the machines have"
    elif not busy:
        missing = "how many threads a worker keeps busy"
    else:
        missing = "how many workers a machine holds"
    return f"{missing} is not known: forecasts take no workers to share cores"
