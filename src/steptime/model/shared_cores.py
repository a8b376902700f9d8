"""Workers that share the cores of their machine: how much longer their steps are, and how sure that is.

A step of w workers, each of which keeps t threads busy on cores of its own, needs ``w t`` processor seconds for each
second that it lasts there, and c cores give c of them a second. So it lasts ``max(1, w t / c)`` times as long: the
utilisation law of P. Denning and J. Buzen, *The operational analysis of queueing network models*, ACM Computing
Surveys 10 (1978) 225.

The law knows only how much there is to compute. With each doubling of workers that take turns on a core, computing
itself takes longer by switching, caches and memory that more of them share, and by threads that wait actively: the
prior of the contention of studies (``SHARING``), which no sweep has moved. Two hardware threads of a core are worth up
to 1.3 cores (D. Marr et al., *Hyper-Threading technology architecture and microarchitecture*, Intel Technology Journal
6 (2002) 4: gains up to 30 %), and a virtual machine may call each of them a core.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptime.units import format_count

Array = NDArray[np.float64]

SHARING = (0.06, 0.1)
"""Of the logarithm of computing beside other workers on the same processors: median and standard deviation."""
_SECOND_THREAD = 0.3
"""Of a core, that its second hardware thread adds at most."""


@dataclass(frozen=True)
class MachineCores:
    """The cores of a machine, and what each of its workers keeps busy of them."""

    cores: float
    """That may be used: physical ones, or fewer by a quota."""
    busy_threads: float = 1.0
    """Of a worker that has cores of its own, those of its input included."""
    hardware_threads: float | None = None
    """Of the cores together; None if that is not known."""

    @property
    def _has_second_threads(self) -> bool:
        return self.hardware_threads is not None and self.hardware_threads > self.cores

    @property
    def capacity(self) -> float:
        """Processor seconds a second: of cores with second threads, the middle of what these may add."""
        return self.cores * (1.0 + _SECOND_THREAD / 2 * self._has_second_threads)

    def stretch(self, workers: Array) -> Array:
        """Return ``max(1, w t / c)`` of so many workers of the machine.

        >>> MachineCores(2.0).stretch(np.array([1.0, 2.0, 3.0, 8.0])).tolist()
        [1.0, 1.0, 1.5, 4.0]
        """
        longer: Array = np.maximum(1.0, workers * self.busy_threads / self.capacity)
        return longer

    def slowdown(self, workers: Array) -> Array:
        """Return how many times as long a step is in the median: the stretch, and what sharing adds to it."""
        longer = self.stretch(workers)
        median: Array = longer * np.exp(SHARING[0] * np.log2(longer))
        return median

    def covariance(self, workers: Array) -> Array:
        """Return that of the logarithms of slowdowns, (workers, workers); none where cores suffice.

        A script that loses more than usual at one number of workers does so at all.
        """
        turns = np.log2(self.stretch(workers))
        spread: Array = SHARING[1] ** 2 * np.outer(turns, turns)
        if self._has_second_threads:
            # A gain that is as likely anywhere between none and the most.
            deviation = _SECOND_THREAD / (1.0 + _SECOND_THREAD / 2) / 12**0.5
            crowded = (workers * self.busy_threads > self.cores).astype(float)
            spread = spread + deviation**2 * np.outer(crowded, crowded)
        return spread

    def deviation(self, workers: float, known: float) -> float:
        """Return that of the logarithm of the slowdown of so many workers over the slowdown of ``known`` ones."""
        own = self.covariance(np.array([workers, known], dtype=float))
        return float(np.sqrt(max(0.0, own[0, 0] + own[1, 1] - 2.0 * own[0, 1])))

    def sentence(self, most: int) -> str:
        """Return what a forecast of up to ``most`` workers of the machine takes of its cores; empty where they suffice.

        >>> MachineCores(2.0).sentence(8)
        'from 3 workers of a machine on, its 2 cores are shared: each keeps 1 thread busy, so 8 take 4x as long'
        """
        longer = float(self.stretch(np.array([float(most)]))[0])
        if longer == 1.0:
            return ""
        first = int(self.capacity / self.busy_threads) + 1
        threads = "1 thread" if self.busy_threads == 1.0 else f"{self.busy_threads:.2g} threads"
        cores = "core is" if self.cores == 1.0 else f"{self.cores:.3g} cores are"
        shared = f"from {format_count(first, 'worker')} of a machine on, its {cores} shared"
        return f"{shared}: each keeps {threads} busy, so {most} take {longer:.3g}x as long"
