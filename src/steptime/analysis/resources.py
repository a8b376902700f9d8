"""The memory that the launches of a trial needed, of hosts and of devices, and the energy that a sample took.

Energy is that of NVML's counter of a device (``nvmlDeviceGetTotalEnergyConsumption``), read while steps are timed.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from steptime.results.gpus import SAMPLED_EVERY_S, most
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches, JsonForm
from steptime.results.records import Launch
from steptime.study.trial import Trial

_NO_DEVICE = "trained on processors, which have no counter that every user may read"
_OTHER_HOSTS = "the GPUs of other hosts are not read"
_NO_COUNTER = "the driver of the GPUs does not say"
COUNTER_S = 0.121
"""So long the counter of energy of a GPU at work stays as it was: 53 to 121 ms on an H100 (driver 580)."""
_LARGEST_SHARE = 0.1
"""The largest share of a launch that may lie between two changes of the counter."""
_TOO_SHORT = (
    f"the counter of energy moves every {COUNTER_S:g} s only: it takes {COUNTER_S / _LARGEST_SHARE:.3g} s of timed "
    "steps (seconds_per_launch)"
)


class Resources(JsonForm):
    """The memory and energy that a trial needed."""

    worker_memory_bytes: float | None
    """The most of a worker's process in any launch."""
    host_memory_bytes: float | None
    """Likewise of all workers of a host; what they share counts for each."""
    device_memory_bytes: float | None
    """The most in use of a device during timed steps, by all programs."""
    joules_per_sample: Interval[float | None]
    """Of all devices."""
    not_read: str | None
    """Why one of the last two is unknown."""


def resources_of(
    trial: Trial, launches: Sequence[Launch], samples_per_s: IntervalOverLaunches[float | None]
) -> Resources:
    """Return what a trial needed.

    Args:
        trial: a configuration.
        launches: of it, that ended well.
        samples_per_s: of all its workers.
    """
    workers, hosts = list[float | None](), list[float | None]()
    for launch in launches:
        known = [(each.host, each.usage.get("max_rss_bytes")) for each in launch.workers]
        workers += [value for _, value in known]
        if all(value is not None for _, value in known):
            sums = Counter[str]()
            for host, value in known:
                sums[host] += int(value or 0)
            hosts += sums.values()
    local = trial.device == "cuda" and trial.hosts == 1
    watched = launches if local else []
    watts = [bounds for launch in watched if (bounds := _bounds_of_watts(launch))]
    memory = most([launch.noise.get("gpu_memory_used_bytes") for launch in watched])
    return Resources(
        worker_memory_bytes=most(workers),
        host_memory_bytes=most(hosts),
        device_memory_bytes=memory,
        joules_per_sample=_joules(watts, samples_per_s),
        not_read=None if watts and memory is not None else _why_not_read(trial, watched),
    )


def _why_not_read(trial: Trial, watched: Sequence[Launch]) -> str:
    if trial.device != "cuda":
        return _NO_DEVICE
    if trial.hosts != 1:
        return _OTHER_HOSTS
    return _TOO_SHORT if any(launch.noise.get("gpu_counted_w") for launch in watched) else _NO_COUNTER


def _bounds_of_watts(launch: Launch) -> tuple[float, float, float] | None:
    """Return the mean power of a launch, the least and the most that it can have been; None if it was too short.

    Each of the two values of the counter may be as old as the counter stays as it was.
    """
    watts, samples = launch.noise.get("gpu_counted_w"), launch.noise.get("gpu_samples")
    share = COUNTER_S / ((samples - 1.0) * SAMPLED_EVERY_S) if samples and samples > 1.0 else None
    if watts is None or share is None or share > _LARGEST_SHARE:
        return None
    return watts, watts * (1.0 - share), watts * (1.0 + share)


def _joules(
    watts: Sequence[tuple[float, float, float]], samples_per_s: IntervalOverLaunches[float | None]
) -> Interval[float | None]:
    if not watts or not samples_per_s.value:
        return NOT_MEASURED
    counted, least, most_of = zip(*watts, strict=True)
    value = median(counted) / samples_per_s.value
    if samples_per_s.low is None or samples_per_s.high is None:
        return Interval(value, None, None)
    return Interval(value, min(least) / samples_per_s.high, max(most_of) / samples_per_s.low)
