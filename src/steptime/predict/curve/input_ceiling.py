"""The input ceiling of a scaling curve: the rate at which a store gives samples to all workers together.

A step lasts as long as the longer of computing and input. What workers ask for grows with their number and a shared
store's rate does not, so that a curve which scaled so far bends once the store is busy; near that point requests queue.
With w seconds of work and i of input a step takes ``(w^k + i^k)^(1/k)``: the longer one for a large k, their sum for 1.
Beyond it many readers disturb each other, and the rate falls.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steptime.catalog.workloads.table import LIBRARY
from steptime.predict.curve.curve import Array, Setup
from steptime.predict.curve.facts import workload_of

STORES: Mapping[str, str] = {
    "shared": "a file system or an object store that all hosts read from",
    "local": "a disk of each host",
    "memory": "the memory of each host",
}
"""Where samples lie, by the name in a table: the rate of the last two grows with the hosts."""

_WITHOUT_INPUT = frozenset({"synthetic"})
_GROUP = 8
"""Workers of a usual host, the unit of the parameter ``store``: a table need not state its hosts."""


@dataclass(frozen=True)
class InputPath:
    """What a table leaves open about input."""

    shared: bool
    """Whether steps may come to wait for a store that all hosts share."""
    samples: float | None = None
    """Of one worker's step over the stated rate of the store, in seconds; None if that is not stated."""


def input_path(setup: Setup) -> InputPath:
    """Return what the columns of a set-up say of its input.

    Samples that are made on the device, or lie in each host, have no ceiling that hosts share, and text has thousands
    of times fewer bytes than pictures. All else, also where nothing is said, may have one.
    """
    if setup.input_rate is not None and setup.batch_per_worker is not None:
        return InputPath(shared=True, samples=setup.batch_per_worker / setup.input_rate)
    name = workload_of(setup)
    text = LIBRARY[name].of_tokens if name in LIBRARY else name.startswith("bert")
    stated_elsewhere = setup.data in _WITHOUT_INPUT or setup.input_store in {"local", "memory"}
    return InputPath(shared=not text and not stated_elsewhere)


def with_input(work: Array, path: InputPath, workers: Array, seconds: Array | float, value: Mapping[str, Array]) -> Array:
    """Return the time of steps with their input, in units of one worker's computing, (samples, points).

    Args:
        work: computing and exchange, in these units.
        path: of the input.
        workers: that read, (points,).
        seconds: of one worker's computing.
        value: ``store``, ``queueing`` and ``disturbing`` of each sample, (samples, 1).
    """
    if not path.shared:
        return work
    if path.samples is None:
        waiting = (workers / _GROUP) ** (1.0 + value["disturbing"]) / value["store"]
    else:
        waiting = workers * path.samples / seconds
    # The longer one is taken out of the power, which would overflow where one is much longer.
    longer = np.maximum(work, waiting)
    both: Array = longer * ((work / longer) ** value["queueing"] + (waiting / longer) ** value["queueing"]) ** (
        1.0 / value["queueing"]
    )
    return both
