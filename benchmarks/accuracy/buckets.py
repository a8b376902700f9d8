"""Single buckets of PyTorch's DDP: how long each is under way, as marked and as predicted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from calibrating import Calibration, calibrations, interconnect_of
from contestants import Contestant
from measuring import Place
from numpy.typing import NDArray
from predicting import graph_of
from quiet import quietest

from steptime.measurements.anatomy.clocks import aligned
from steptime.measurements.anatomy.records import AnatomyLaunch
from steptime.perfmodels.communication.carriage import Interconnect, carriage
from steptime.simulator.scene import readiness, shares_of
from steptime.simulator.sharing import share
from steptime.stepgraph.graph import StepGraph

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


def buckets(place: Place, contestant: Contestant, name: str, megabits: float) -> Iterator[Bucket]:
    """Yield the buckets of every number of hosts whose steps were taken apart at this bandwidth; only DDP has any."""
    stores = place.stores(contestant, name, megabits)
    if stores is None or contestant.name != "pytorch":
        return
    steps, alone, net = stores
    base, links = calibrations(alone, contestant), quietest(net.net())
    for trial in steps.trials():
        graph = graph_of(trial)
        between = interconnect_of(links, contestant, graph.plan)
        seen = [_seen(each) for each in quietest(steps.anatomies(trial.id))]
        seen = [each for each in seen if each is not None and len(each) == len(graph.messages)]
        if between is None or not seen or trial.workers not in base:
            continue
        at_once, serial = _predicted(graph, trial.workers, base[trial.workers], between)
        measured = np.mean(seen, axis=0)
        for index, message in enumerate(graph.messages):
            yield Bucket(
                load=name,
                megabits=megabits,
                hosts=trial.workers,
                place=index,
                bytes=message.bytes,
                measured_s=float(measured[index]),
                predicted_s=float(at_once[index]),
                serial_s=float(serial[index]),
            )


def _seen(launch: AnatomyLaunch) -> Array | None:
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
    cost = carriage("allreduce", sizes, workers, between)
    moments = base.slowest * (base.forward + base.backward * readiness(graph, shares_of(graph)))
    computing = np.array([base.slowest * (base.forward + base.backward)])
    start, transfer = (np.atleast_2d(each) for each in (cost.start, cost.transfer))
    played = [
        share(moments, start, transfer, computing, in_flight=count).ends - moments
        for count in (graph.plan.in_flight, 1)
    ]
    return played[0][0], played[1][0]
