"""The input of a scaling curve: what a host's own loaders give, and a store that all hosts share.

A step lasts as long as the longest of its work, its loaders and its store. What workers ask of a shared store grows
with their number and its rate does not, so that a curve which scaled so far bends once the store is busy; what workers
of one host ask of its processors does not change any more once the host is full. Near such a point requests queue: of
several times ``t`` a step takes ``(sum t^k)^(1/k)``, the longest for a large k, their sum for 1. Where a store is busy
many readers disturb each other, and its rate falls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np

from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.workloads.table import LIBRARY
from steptime.curves.curve import INPUT, Array, ScalingCurve
from steptime.curves.facts import workload_of

_SHARED = "shared"
STORES = (_SHARED, "local", "memory")
"""Where samples lie: in a store that all hosts read from, on a disk of each host, or in its memory."""

_GROUP = 8
"""Workers of a usual host: the unit of ``store``, and the size of a host that the table does not state."""

_MOST_DISTURBING = 1.0
"""The exponent of a store that gives the less the more workers read from it, all of them together."""


@dataclass(frozen=True)
class InputPath:
    """What a table says of its input."""

    read: bool
    """Whether samples are read within the time, and not made on the device."""
    shared: bool
    """Whether steps may come to wait for a store that all hosts share."""
    samples_s: float | None = None
    """Seconds in which the store gives one worker's samples of a step, by its stated rate; None if not stated."""


def input_path(curve: ScalingCurve) -> InputPath:
    """Return what the columns of a curve say of its input.

    Where nothing is said, samples may come from a shared store. Those of text have thousands of times fewer bytes than
    pictures, and meet no limit.
    """
    setup = curve.setup
    name = workload_of(setup)
    text = LIBRARY[name].of_tokens if name in LIBRARY else name.startswith("bert")
    timed = setup.time_includes is None or INPUT in setup.time_includes
    read = not text and timed and setup.data != SYNTHETIC.name
    batch: float | None = setup.batch_per_worker
    if setup.global_batch is not None:
        batch = setup.global_batch / curve.fit[0].workers
    if setup.input_rate is not None and batch is not None:
        return InputPath(read=read, shared=True, samples_s=batch / setup.input_rate)
    return InputPath(read=read, shared=read and setup.input_store in {"", _SHARED})


def full_host(curve: ScalingCurve) -> float:
    """Return the workers of a full host, of as many processors as it takes; of a usual one where no size is known."""
    size = curve.setup.host_size
    return size if isfinite(size) else float(_GROUP)


def with_input(  # noqa: PLR0913, PLR0917 - quantities of one formula
    work: Array, path: InputPath, together: Array, workers: Array, seconds: Array | float, value: Mapping[str, Array]
) -> Array:
    """Return the time of steps with their input, in units of one worker's computing, (samples, points).

    Args:
        work: computing and exchange, in these units.
        path: of the input.
        together: workers of the fullest host over those of a full one, by what they ask for, (points,).
        workers: of all hosts, by what they ask for, (points,).
        seconds: of one worker's computing with its whole batch, (samples, 1).
        value: ``loaders``, ``store``, ``queueing`` and ``disturbing`` of each sample, (samples, 1).
    """
    times = [work]
    if path.read:
        times.append(together / value["loaders"])
    if path.samples_s is not None:
        times.append(np.broadcast_to(workers * path.samples_s / seconds, work.shape))
    elif path.shared:
        exponent = 1.0 + np.minimum(value["disturbing"], _MOST_DISTURBING)
        times.append((workers / _GROUP) ** exponent / value["store"])
    if len(times) == 1:
        return work
    # The longest is taken out of the power, which would overflow where one is much longer than the others.
    longest = np.maximum.reduce(times)
    powers = sum(((time / longest) ** value["queueing"] for time in times), start=np.zeros_like(longest))
    together_s: Array = longest * powers ** (1.0 / value["queueing"])
    return together_s
