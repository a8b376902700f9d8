"""What ranks wait for in steps that are compiled whole: a step of one rank is not over before all have begun theirs.

JAX shows when the device of a rank began a step (it was asked for, and the step before was over) and when it had
finished it. From its own begin until that of the last rank a device waits in the exchange at its end, or computes what
the last one has still to compute: the same, if ranks compute alike. It waits no longer than its step lasts beyond that
of the last rank: a step without an exchange lasts as long on all. What one computes longer inside does not show.
Of that time the rank itself waits at most as long as it is in calls, or waits for its device, then or later.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from steptime.attached.attempts import Attempt
from steptime.results.attached_lines import DeviceLine, StepLine

_PER_S = 1e-9
_APART = "ranks finish steps that others have not begun: they exchange nothing in them"
_NOT_TOGETHER = "steps end on ranks as far apart as they begin: what ranks exchange lies outside of them"
_TOGETHER = 0.5
"""Of how much later than others a rank begins steps, what at least is made good by their ends."""
_MOST_APART = 0.05
"""Of the steps, that may end on a rank before another begins its own, by what clocks and threads are late."""
_LATE_S = 1e-3
"""By how much."""
_ASKED = ("call", "compile", "wait")
"""Regions in which the host waits for results of the device."""


def device_spans(attempt: Attempt, numbers: Sequence[int]) -> Mapping[int, NDArray[np.float64]]:
    """Return of each step that all ranks have on record when devices began and finished it: 2 x ranks, in seconds."""
    lines = [{line.step: line for line in process.devices if line.end_ns} for process in attempt.processes.values()]
    common = set(numbers).intersection(*lines) if lines else set()
    return {number: _times([own[number] for own in lines]) for number in sorted(common)}


def _times(lines: Sequence[DeviceLine]) -> NDArray[np.float64]:
    return np.array([[line.begin_ns for line in lines], [line.end_ns for line in lines]]) * _PER_S


def exchange_nothing(begins: NDArray[np.float64], ends: NDArray[np.float64], uncertainty_s: float) -> str | None:
    """Return why steps show that ranks exchange nothing in them; None if they may.

    Args:
        begins: of the steps, ranks x steps, on one clock.
        ends: likewise.
        uncertainty_s: of that clock.
    """
    early = begins.max(axis=0) - ends.min(axis=0) > _LATE_S + uncertainty_s
    if early.mean() > _MOST_APART:
        return _APART
    late_s, waited_s = (begins.max(axis=0) - begins).mean(), waiting_of_devices(begins, ends).mean()
    return _NOT_TOGETHER if waited_s < _TOGETHER * late_s and late_s > _LATE_S + uncertainty_s else None


def waiting_of_devices(begins: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how long devices wait for the last one, ranks x steps, from the same as ``exchange_nothing``."""
    lasting = ends - begins
    of_last = np.take_along_axis(lasting, begins.argmax(axis=0)[np.newaxis], axis=0)
    return np.clip(lasting - of_last, 0.0, begins.max(axis=0) - begins)


def waiting_of_hosts(waiting: NDArray[np.float64], steps: Sequence[Sequence[StepLine]]) -> NDArray[np.float64]:
    """Return how long ranks wait in each step for what their devices wait for, in this step or an earlier one.

    Work that the host does meanwhile does not count. A host that runs ahead of its device and reads a result now and
    then waits there for all that its device has waited since the read before.

    Args:
        waiting: of the devices, ranks x steps, in seconds.
        steps: the same steps, of all ranks.
    """
    asked = np.array([[step.seconds(*_ASKED) for step in ranks] for ranks in steps]).T
    waited, behind = np.zeros_like(waiting), np.zeros(len(waiting))
    for index in range(waiting.shape[1]):
        behind += waiting[:, index]
        waited[:, index] = np.minimum(behind, asked[:, index])
        behind -= waited[:, index]
    return waited
