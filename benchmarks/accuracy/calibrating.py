"""What predictions stand on: computing without sending, and the link of two hosts; no step that sends is looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from contestants import Contestant
from link_pieces import Piece, interconnect_of
from measuring import LONG, MIDDLE, SHORT
from numpy.typing import NDArray
from quiet import quiet, quietest

from steptime.measurements.ablation.stages import StageTimes, stage_times_of
from steptime.measurements.net.line import through_ends
from steptime.measurements.net.records import NetLaunch
from steptime.measurements.store import Store
from steptime.model.collectives import SOCKET_RENDEZVOUS_BYTES
from steptime.model.interconnect import Interconnect
from steptime.model.measured_links import net_summary
from steptime.worker.communication import CommunicationPlan

_QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of one worker's step without any exchange."""

    forward: float
    backward: float
    update: float
    slowest: float
    """Of the slowest worker over the mean one."""
    varies: float = 0.0
    """Standard deviation of a worker's computing from step to step, as a share."""
    quiet: bool = True
    """Whether the machine was quiet when it was measured."""

    @property
    def whole(self) -> float:
        """Seconds of the slowest worker's step."""
        return (self.forward + self.backward) * self.slowest + self.update

    def times(self, factor: float) -> "Calibration":
        """Return the same where computing takes so many times as long."""
        return replace(
            self, forward=self.forward * factor, backward=self.backward * factor, update=self.update * factor
        )


def calibrations(store: Store, contestant: Contestant) -> dict[int, Calibration]:
    """Return computing without sending, by the number of workers; of a worker's two strategies, one that was quiet."""
    found: dict[int, Calibration] = {}
    for trial in store.trials():
        launches = store.ablations(trial.id)
        all_stage_times = stage_times_of(quietest(launches))
        known = found.get(trial.workers)
        if all_stage_times and (known is None or not known.quiet or quiet(launches)):
            found[trial.workers] = replace(computing_of(all_stage_times, contestant), quiet=bool(quiet(launches)))
    return found


def computing_of(all_stage_times: Sequence[StageTimes], contestant: Contestant) -> Calibration:
    """Return computing without sending as some launches show it, whether or not they have rungs that send."""

    def median(name: str) -> float:
        return float(
            np.mean([np.median(np.concatenate(each.stages[name], axis=1), axis=1).mean() for each in all_stage_times])
        )

    forward, backward = median("forward"), median("backward")
    # Where servers update, workers do not, and there is no rung of it.
    local = backward if contestant.is_served else median("local")
    slowest = [
        np.median(each.compute().max(axis=0)) / np.median(each.compute().mean(axis=0)) for each in all_stage_times
    ]
    varies = [np.mean(_robust(each.compute()) / np.median(each.compute(), axis=1)) for each in all_stage_times]
    return Calibration(
        forward=forward,
        backward=backward - forward,
        update=max(0.0, local - backward),
        slowest=float(np.mean(slowest)),
        varies=float(np.mean(varies)),
    )


def _robust(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of each row, as the middle half of a normal one shows it."""
    return np.asarray(np.diff(np.quantile(seconds, [0.25, 0.75], axis=1), axis=0)[0] / _QUARTILES)


def between_hosts(
    launches: Sequence[NetLaunch], contestant: Contestant, plan: CommunicationPlan
) -> Interconnect | None:
    """Return the link of two hosts: lines through the times of its messages; None without the shortest and longest.

    Where a middle size was measured too, messages from there on have the line above it: behind shorter ones, workers
    that share cores sleep until the scheduler's next look, which says nothing of the link.
    """
    rows = [row for row in net_summary(launches).rows if row.operation == contestant.operation]
    seconds = {size.bytes: size.time_s.value for row in rows for size in row.sizes}
    short, middle, long = (seconds.get(size) for size in (SHORT, MIDDLE, LONG))
    if short is None or long is None:
        return None
    steps, volume = rows[0].steps, rows[0].volume
    per_byte = (long - short) / (LONG - SHORT)
    if contestant.is_served:
        # A worker that has its answer first pushes its next message beside the others' answers, so that messages
        # directly behind each other seem quicker than the link: no more than plain sockets found is believed.
        per_byte = max(per_byte, volume / _socket_rate(launches))
    elif plan.fusion is not None:
        # A message waits for a look, for all to know of it, and for its exchange: the last two are told apart by
        # nothing here, and take as long as each other. Knowing is a short message whatever it is about.
        short = max(short - plan.fusion.cycle_s, 0.0) / 2.0
    found = [Piece(0.0, short, per_byte)]
    if middle is not None and not contestant.is_served and plan.fusion is None:
        above = through_ends(np.array([MIDDLE, LONG]), np.array([middle, long]))
        found.append(Piece(MIDDLE, above.start_s, above.per_byte_s))
    return interconnect_of(found, steps, volume, plan.algorithm or "ring", rendezvous=SOCKET_RENDEZVOUS_BYTES)


def _socket_rate(launches: Sequence[NetLaunch]) -> float:
    """Return what plain sockets between the same hosts reached before each launch, bytes per second."""
    paths = [path for launch in launches if launch.cluster for path in launch.cluster["paths"]]
    return float(np.median([path["bandwidth_bits_per_s"] / 8 for path in paths])) if paths else np.inf
