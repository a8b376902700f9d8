"""The memory that the launches of a trial needed, of hosts and of devices, and the energy that a sample took.

Energy is that of NVML's counter of a device (``nvmlDeviceGetTotalEnergyConsumption``), read while steps are timed.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from steptime.results.gpus import most
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches, JsonForm
from steptime.results.records import Launch
from steptime.study.trial import Trial

_NO_DEVICE = "trained on processors, which have no counter that every user may read"
_OTHER_HOSTS = "the GPUs of other hosts are not read"
_NO_COUNTER = "the driver of the GPUs does not say"


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
    watts = [each for launch in launches if local and (each := launch.noise.get("gpu_counted_w"))]
    memory = most([launch.noise.get("gpu_memory_used_bytes") for launch in launches]) if local else None
    reason = _NO_COUNTER if local else _OTHER_HOSTS if trial.device == "cuda" else _NO_DEVICE
    return Resources(
        worker_memory_bytes=most(workers),
        host_memory_bytes=most(hosts),
        device_memory_bytes=memory,
        joules_per_sample=_joules(watts, samples_per_s),
        not_read=None if watts and memory is not None else reason,
    )


def _joules(watts: Sequence[float], samples_per_s: IntervalOverLaunches[float | None]) -> Interval[float | None]:
    if not watts or not samples_per_s.value:
        return NOT_MEASURED
    value = median(watts) / samples_per_s.value
    if samples_per_s.low is None or samples_per_s.high is None:
        return Interval(value, None, None)
    return Interval(value, min(watts) / samples_per_s.high, max(watts) / samples_per_s.low)
