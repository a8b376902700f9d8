"""Single buckets of PyTorch's DDP: how long each is under way, as marked and as predicted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from calibrating import Calibration
from contestants import Contestant
from numpy.typing import NDArray
from quiet import quietest
from settings import Setting

from steptime.measurements.ablation.records import AblationLaunch
from steptime.measurements.ablation.stages import aligned
from steptime.model.interconnect import Interconnect, communication_cost
from steptime.model.policies import StepGraph
from steptime.simulate.configuration import readiness_by_arithmetic, shares_of
from steptime.simulate.link_contention import share_link

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bucket:
    """Seconds from the moment when the last worker had it ready until it was there."""

    load: str
    megabits: float
    hosts: int
    place: int
    bytes: int
    measured_s: float
    predicted_s: float
    serial_s: float
    """By the recursion that sends one bucket at a time."""


def buckets(settings: Iterable[Setting], contestant: Contestant) -> Iterator[Bucket]:
    """Yield the buckets of every number of hosts whose steps were taken apart."""
    if not contestant.has_buckets:
        return
    for setting in settings:
        graph, workers = setting.graph, setting.trial.workers
        seen = [_seen(each) for each in quietest(setting.steps.ablations(setting.trial.id))]
        seen = [each for each in seen if each is not None and len(each) == len(graph.messages)]
        if not seen or workers not in setting.base:
            continue
        at_once, serial = _predicted(graph, workers, setting.base[workers], setting.between)
        measured = np.mean(seen, axis=0)
        for index, message in enumerate(graph.messages):
            yield Bucket(
                load=setting.load,
                megabits=setting.megabits,
                hosts=workers,
                place=index,
                bytes=message.bytes,
                measured_s=float(measured[index]),
                predicted_s=float(at_once[index]),
                serial_s=float(serial[index]),
            )


def _seen(launch: AblationLaunch) -> Array | None:
    """Return the median seconds of each bucket of a step; None where workers do not show the same ones."""
    ready, done = [], []
    for worker in launch.workers:
        steps = len(worker.marked)
        count = len(worker.transfers) // steps if steps else 0
        if not count or len(worker.transfers) != steps * count:
            return None
        times = aligned(worker, [(begin, end) for _, _, begin, end in worker.transfers]).reshape(steps, count, 2)
        ready.append(times[..., 0])
        done.append(times[..., 1])
    if len({each.shape for each in ready}) != 1:
        return None
    return np.asarray(np.median(np.mean(done, axis=0) - np.max(ready, axis=0), axis=0))


def _predicted(graph: StepGraph, workers: int, base: Calibration, between: Interconnect) -> tuple[Array, Array]:
    """Return the seconds of each bucket with as many in flight as the plan says, and with one."""
    sizes = np.array([message.bytes for message in graph.messages], dtype=np.float64)
    cost = communication_cost("allreduce", sizes, workers, between)
    moments = base.slowest * (base.forward + base.backward * readiness_by_arithmetic(graph, shares_of(graph)))
    computing = np.array([base.slowest * (base.forward + base.backward)])
    start, transfer = (np.atleast_2d(each) for each in (cost.start, cost.transfer))
    simulated = [
        share_link(moments, start, transfer, computing, in_flight=count).ends - moments
        for count in (graph.plan.in_flight, 1)
    ]
    return simulated[0][0], simulated[1][0]
