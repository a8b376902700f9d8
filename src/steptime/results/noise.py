"""What else the machine did during a launch: read before and after, compared, and marked by limits set in advance.

Noise never removes a launch. Everything that the system does not say is None.
"""

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from steptime.flags import FLAGS, stored
from steptime.results.gpus import GpuState, gpu_states, most
from steptime.results.machine import (
    cgroup_throttled_s,
    cpu_hz,
    load_averages,
    memory_bytes,
    network_bytes,
    package_energy,
    pressure_s,
    processor_seconds,
    retransmits,
    swapped_in_pages,
    thermal_throttles,
)

# Below this many ticks of the kernel's counters (10 ms each) a load cannot be told from rounding.
_MIN_WALL_S = 0.5
_MOST_WATTS = 1000.0
"""Of a package of processors."""


@dataclass(frozen=True)
class Snapshot:
    """Counters at one moment; differences of two say what happened in between."""

    at_s: float
    loads: tuple[float, float, float] | None
    runnable: float | None
    processor_s: dict[str, float]
    """Seconds since boot, over all cores, by what they were spent on (``user``, ``idle``, ``steal``, …)."""
    own_cpu_s: float
    """Of this process and of its ended and awaited descendants."""
    own_involuntary_switches: float
    cpu_hz: float | None
    thermal_throttles: float | None
    cgroup_throttled_s: float | None
    cpu_pressure_s: float | None
    memory_total_bytes: float | None
    memory_available_bytes: float | None
    swapped_in_pages: float | None
    network: dict[str, float]
    """Bytes received and sent, by ``loopback`` and ``interfaces``, and ``dropped`` packets."""
    retransmits: float | None
    gpus: list[GpuState] = field(default_factory=list)
    packages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Joules of each package of processors, and where its counter begins anew."""


def snapshot() -> Snapshot:
    """Read the machine's counters; takes a few milliseconds and never fails."""
    loads, runnable = load_averages()
    memory, available = memory_bytes()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Snapshot(
        at_s=time.monotonic(),
        loads=loads,
        runnable=runnable,
        processor_s=processor_seconds(),
        own_cpu_s=sum(usage.ru_utime + usage.ru_stime for usage in own),
        own_involuntary_switches=float(sum(usage.ru_nivcsw for usage in own)),
        cpu_hz=cpu_hz(),
        thermal_throttles=thermal_throttles(),
        cgroup_throttled_s=cgroup_throttled_s(),
        cpu_pressure_s=pressure_s(),
        memory_total_bytes=memory,
        memory_available_bytes=available,
        swapped_in_pages=swapped_in_pages(),
        network=network_bytes(),
        retransmits=retransmits(),
        gpus=gpu_states(),
        packages=package_energy(),
    )


def difference(before: Snapshot, after: Snapshot, own_cpu_s: float | None = None) -> dict[str, float | None]:
    """Return what happened between two snapshots, in SI units; None if the system does not say.

    Args:
        before: taken before the launch.
        after: taken after its last process was awaited.
        own_cpu_s: processor seconds of the launched processes; without it, those of this process's descendants
            are taken from the snapshots. This process's own seconds are always added.
    """
    wall = max(after.at_s - before.at_s, 1e-9)
    spent = {name: after.processor_s[name] - before.processor_s.get(name, 0.0) for name in after.processor_s}
    total = sum(spent.values())
    tree = after.own_cpu_s - before.own_cpu_s
    own = tree if own_cpu_s is None else max(own_cpu_s, tree)
    # Interrupts are left out: those of a launch's own traffic would look like somebody else's work.
    busy = sum(spent.get(name, 0.0) for name in ("user", "nice", "system"))
    loads = before.loads or (None, None, None)
    return {
        "wall_s": wall,
        "load_1min_before": loads[0],
        "load_5min_before": loads[1],
        "load_15min_before": loads[2],
        "load_1min_after": after.loads[0] if after.loads else None,
        "runnable_before": before.runnable,
        "runnable_after": after.runnable,
        "own_cpu_cores": own / wall,
        "foreign_cpu_cores": max(0.0, busy - own) / wall if spent and wall >= _MIN_WALL_S else None,
        "interrupt_share": (spent.get("irq", 0.0) + spent.get("softirq", 0.0)) / total if total else None,
        "steal_share": spent.get("steal", 0.0) / total if total else None,
        "iowait_share": spent.get("iowait", 0.0) / total if total else None,
        "involuntary_switches": after.own_involuntary_switches - before.own_involuntary_switches,
        "cpu_hz_before": before.cpu_hz,
        "cpu_hz_after": after.cpu_hz,
        "thermal_throttles": _minus(after.thermal_throttles, before.thermal_throttles),
        "cgroup_throttled_share": _share(after.cgroup_throttled_s, before.cgroup_throttled_s, wall),
        "cpu_pressure_share": _share(after.cpu_pressure_s, before.cpu_pressure_s, wall),
        "memory_available_share": _available(before, after),
        "swapped_in_pages": _minus(after.swapped_in_pages, before.swapped_in_pages),
        "loopback_bytes": _minus(after.network.get("loopback"), before.network.get("loopback")),
        "interface_bytes": _minus(after.network.get("interfaces"), before.network.get("interfaces")),
        "dropped_packets": _minus(after.network.get("dropped"), before.network.get("dropped")),
        "tcp_retransmits": _minus(after.retransmits, before.retransmits),
        "package_energy_j": _package_energy(before.packages, after.packages, wall),
        **_gpu_difference(before.gpus, after.gpus, wall),
    }


def of_counters(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what happened on another host between two readings of its counters, as its host agent wrote them."""
    return difference(_read_there(before), _read_there(after))


def _read_there(counters: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot of another host; what a host agent does not read is None."""
    loads = counters["loads"]
    network = counters["network"]
    loopback = float(sum(network.get("lo", (0, 0))))
    return Snapshot(
        at_s=counters["at_s"],
        loads=(loads[0], loads[1], loads[2]),
        runnable=counters["runnable"],
        processor_s=counters["processor_s"],
        own_cpu_s=counters.get("own_cpu_s", 0.0),
        own_involuntary_switches=0.0,
        cpu_hz=None,
        thermal_throttles=None,
        cgroup_throttled_s=None,
        cpu_pressure_s=None,
        memory_total_bytes=counters["memory_total_bytes"],
        memory_available_bytes=counters["memory_available_bytes"],
        swapped_in_pages=counters["swapped_in_pages"],
        network={"loopback": loopback, "interfaces": float(sum(map(sum, network.values()))) - loopback},
        retransmits=None,
    )


def worst(hosts: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the noise of a launch on several hosts: of each quantity the most that any host had, of memory the least.

    Empty without hosts.
    """
    names = dict.fromkeys(name for host in hosts for name in host)
    found: dict[str, float | None] = {}
    for name in names:
        known = [value for host in hosts if (value := host.get(name)) is not None]
        chosen = min if name == "memory_available_share" else max
        found[name] = chosen(known) if known else None
    return found


def flags(noise: Mapping[str, float | None], workers: int, cores: int, threads: int) -> list[str]:
    """Return the flags of a launch, as its record keeps them.

    Args:
        noise: from ``difference``.
        workers: of the launch.
        cores: that the launch could use.
        threads: compute threads of each worker.
    """
    crowded = [stored("overcommitted")] if workers * threads > cores else []
    return crowded + [stored(code) for code, flag in FLAGS.items() if flag.limit and flag.limit.is_passed(noise)]


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else max(0.0, after - before)


def _share(after: float | None, before: float | None, wall: float) -> float | None:
    used = _minus(after, before)
    return None if used is None else used / wall


def _available(before: Snapshot, after: Snapshot) -> float | None:
    total, left = before.memory_total_bytes, (before.memory_available_bytes, after.memory_available_bytes)
    if not total or left[0] is None or left[1] is None:
        return None
    return min(left[0], left[1]) / total


def _package_energy(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], wall: float
) -> float | None:
    """Return the joules of all packages; None if a counter may have begun anew more than once, or is missing."""
    if not before or before.keys() != after.keys() or any(most < wall * _MOST_WATTS for _, most in before.values()):
        return None
    return sum((after[zone][0] - taken) % most for zone, (taken, most) in before.items())


def _gpu_difference(before: list[GpuState], after: list[GpuState], wall: float) -> dict[str, float | None]:
    pairs = list(zip(before, after, strict=False))
    held = [_share(new.throttled_s, old.throttled_s, wall) for old, new in pairs]
    taken = [_minus(new.energy_j, old.energy_j) for old, new in pairs]
    return {
        "gpu_throttled_share": most(held),
        "gpu_processes_before": most([old.processes for old, _ in pairs]),
        "gpu_energy_j": sum(value or 0.0 for value in taken) if taken and None not in taken else None,
    }


def median_noise(launches: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the median over launches of everything that the noise of one of them names; None of what none knows."""
    medians: dict[str, float | None] = {}
    for name in dict.fromkeys(name for noise in launches for name in noise):
        known = [value for noise in launches if (value := noise.get(name)) is not None]
        medians[name] = median(known) if known else None
    return medians
