"""The runs of one number of workers that a sweep started, reduced to what its answer is made of."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.attached.attempts import attempts_of
from steptime.attached.processor_use import busy_threads
from steptime.attached.step_parts import longest_training
from steptime.attached.step_selection import kept_steps
from steptime.attached.summary import attached_run
from steptime.results.machine import usable_cores
from steptime.results.store import Store
from steptime.statistics.launch_times import LaunchTimes, reduce_times
from steptime.units import format_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steptime.attached.attempts import Attempt
    from steptime.attached.form import AttachedRun
    from steptime.results.attached_files import AttachedHeader


_COUNTERS = {True: ("gpu_energy_j", "NVML's counter of GPUs"), False: ("package_energy_j", "RAPL of the processors")}
"""Of the energy of a run, by whether it trained on GPUs."""


@dataclass(frozen=True)
class WorkersOnCores:
    """Where the workers of a run computed that had no devices."""

    machines: int
    most: int
    """Workers on one of them."""
    cores: float | None
    """Of a machine, that may be used; None if that is not on record."""
    hardware_threads: float | None
    busy_threads: float | None
    """Of a worker; None if its processes do not show it."""


@dataclass(frozen=True)
class SweptRuns:
    """The runs of one number of workers that trained."""

    workers: int
    launches: list[LaunchTimes]
    steps: int
    """Median over runs, on record."""
    parts_s: Mapping[str, float]
    samples: float | None = None
    """Of a step, of all workers; None if a loader was not seen."""
    ended_early: bool = False
    """Whether the sweep ended a run, whose steps do not tell then how the script goes through its data."""
    passes: int | None = None
    """Backward passes of a step of each worker; None if that changes."""
    foreign_cores: float | None = None
    """That other programs kept busy, in the busiest run; None if that is not known."""
    watts: float | None = None
    """Mean over whole commands of what GPUs took that trained, or else processors; None without a counter."""
    no_watts: str | None = None
    """Why not."""
    on_cores: WorkersOnCores | None = None
    """None on devices."""


def read_runs(workers: int, stores: Sequence[tuple[int, Store]]) -> tuple[SweptRuns | None, str | None]:
    """Return the runs of one number of workers, and what is wrong with them.

    Args:
        workers: that were asked for.
        stores: of runs that ended well, with the round of each.
    """
    lengths: list[NDArray[np.float64]] = []
    blocks: list[int] = []
    steps: list[int] = []
    runs: list[AttachedRun] = []
    worlds: set[int] = set()
    early = False
    places: list[WorkersOnCores | None] = []
    for block, store in stores:
        recorded = store.attached()
        attempts = attempts_of(recorded[1].processes) if recorded else []
        kept = [own for attempt in attempts if (own := kept_steps(attempt)).numbers]
        if recorded is None or not kept:
            continue
        training = longest_training(kept)
        worlds.add(training.attempt.world)
        lengths.append(training.length_s.max(axis=0))
        blocks.append(block)
        steps.append(len(training.attempt.steps))
        runs.append(attached_run(*recorded))
        places.append(_workers_on_cores(runs[-1], training.attempt, recorded[0], store))
        early |= recorded[0].ended_early is not None
    if not lengths:
        what = "trained a step that steptime knows" if stores else "ended well so far"
        return None, f"no run with {format_count(workers, 'worker')} {what}"
    problem = None
    if worlds != {workers}:
        seen = " and ".join(map(str, sorted(worlds)))
        problem = f"with workers={workers} the command trained on {seen} processes; check where {{workers}} belongs"
    elif cores := _shared_cores(runs[0], stores[0][1]):
        problem = (
            f"{workers} workers shared {format_count(cores, 'core')} of one host: what more of them bring is bound by "
            "cores"
        )
    parts: dict[str, list[float]] = {}
    for run in runs:
        for part in run.parts:
            if part.time_s.value is not None:
                parts.setdefault(part.name, []).append(part.time_s.value)
    means = {name: sum(values) / len(runs) for name, values in parts.items()}
    amounts = [run.throughput.samples.per_step if run.throughput else None for run in runs]
    known = [samples for samples in amounts if samples is not None]
    samples = sum(known) / len(known) if len(known) == len(amounts) else None
    micro_steps = {run.micro_steps for run in runs}
    return SweptRuns(
        workers=workers,
        launches=reduce_times(lengths, blocks),
        steps=int(np.median(steps)),
        parts_s=means,
        samples=samples,
        ended_early=early,
        passes=micro_steps.pop() if len(micro_steps) == 1 else None,
        foreign_cores=_foreign_cores(runs),
        **_power(runs),
        on_cores=_same_place(places),
    ), problem


def _workers_on_cores(
    run: "AttachedRun", attempt: "Attempt", header: "AttachedHeader", store: Store
) -> WorkersOnCores | None:
    """Return where the workers of a run computed; hosts of one kernel, such as containers, are one machine."""
    if run.device is not None or any(host.devices for host in run.hosts):
        return None
    boots = Counter(attempt.boots.values())
    facts = (store.machine() or {}) if header.boot in boots else {}
    cores, threads = usable_cores(facts), facts.get("threads")
    return WorkersOnCores(
        machines=len(boots),
        most=max(boots.values()),
        cores=float(cores) if cores else None,
        hardware_threads=float(threads) if isinstance(threads, int) else None,
        busy_threads=busy_threads(attempt.processes.values()),
    )


def _same_place(places: Sequence[WorkersOnCores | None]) -> WorkersOnCores | None:
    """Return where the workers of all runs computed, which keep as many threads busy as in the run that had most."""
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    busy = [place.busy_threads for place in known if place.busy_threads is not None]
    first = known[0]
    if {(place.machines, place.most, place.cores) for place in known} != {(first.machines, first.most, first.cores)}:
        return replace(first, cores=None)
    return replace(first, busy_threads=max(busy, default=None))


def _shared_cores(run: "AttachedRun", store: Store) -> int | None:
    """Return the cores of the one host whose workers are more than they and compute on them; else None."""
    cores = (store.machine() or {}).get("cores")
    if not isinstance(cores, int) or len(run.hosts) != 1 or run.hosts[0].devices or run.device is not None:
        return None
    return cores if len(run.hosts[0].ranks) > cores else None


def _power(runs: Sequence["AttachedRun"]) -> Mapping[str, Any]:
    """Return the mean power of runs, of which all must have a counter, or why it is not known."""
    on_gpus = any(host.devices for run in runs for host in run.hosts)
    name, counter = _COUNTERS[on_gpus]
    known = [(run.noise.get(name), run.noise.get("wall_s")) for run in runs]
    watts = [taken / wall_s for taken, wall_s in known if taken is not None and wall_s]
    if any(len(run.hosts) > 1 for run in runs):
        return {"no_watts": "counters of energy of other hosts are not read"}
    if len(watts) < len(known):
        return {"no_watts": f"{counter}, as an energy meter, is missing or may be read by root alone"}
    return {"watts": sum(watts) / len(watts)}


def _foreign_cores(runs: Sequence["AttachedRun"]) -> float | None:
    known = [cores for run in runs if (cores := run.noise.get("foreign_cpu_cores")) is not None]
    return max(known, default=None)
