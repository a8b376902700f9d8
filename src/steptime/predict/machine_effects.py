"""Effects of the measured machine on exchanges: threads that share cores, and sockets behind token buckets.

They were found on machines with as many cores as workers and on emulated hosts, and hold nowhere else; so each is
switched on by what the launches of a results folder recorded, whatever the framework.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steptime.measurements.records import Launch

TICK_S = 4e-3
"""Scheduler tick of Linux as most distributions build it (250 Hz): a thread that wakes up waits so long for a core that
computing holds."""
RAMP_S = 0.3
"""Six times the 50 ms of messages that the queue of an emulated link holds: round trips that a further connection of
TCP Reno needs until it has its share. Updates of 41 ms and of 2 s on emulated links ask for it."""
_PREEMPTED_AT = 1.0
"""Involuntary switches of a worker in a step, beyond those of one worker alone."""


@dataclass(frozen=True)
class MachineEffects:
    """What the launches of a configuration recorded of its machine."""

    preempted: bool = False
    """Whether computing lost its core to threads that communicate, in every step."""
    token_buckets: bool = False
    """Whether messages between hosts went over sockets, through the token buckets of emulated links."""


NO_EFFECTS = MachineEffects()


def preemptions_of(launch: Launch) -> float | None:
    """Return the involuntary switches of a worker in a step; None if the system did not count them."""
    counts = [
        worker.usage["involuntary_switches"] / len(worker.ends_s)
        for worker in launch.workers
        if worker.ends_s and worker.usage.get("involuntary_switches") is not None
    ]
    return float(np.mean(counts)) if counts else None


def crossed_token_buckets(launch: Launch) -> bool:
    """Say whether bytes crossed the interfaces of hosts whose links a token bucket limits."""
    hosts = (launch.cluster or {}).get("hosts", [])
    return any(host["burst_bytes"] and host["received_bytes"] > 0 for host in hosts) and len(hosts) > 1


def effects_of(preemptions: float | None, alone: Iterable[float], *, token_buckets: bool) -> MachineEffects:
    """Return the effects in a configuration.

    Args:
        preemptions: per worker and step; None if not counted.
        alone: the same of one worker by itself.
        token_buckets: whether its messages crossed some.
    """
    usual = max(alone, default=0.0)
    return MachineEffects(preemptions is not None and preemptions - usual >= _PREEMPTED_AT, token_buckets)


def combined(effects: Sequence[MachineEffects]) -> MachineEffects:
    """Return the effects that any of several configurations showed."""
    return MachineEffects(any(each.preempted for each in effects), any(each.token_buckets for each in effects))
