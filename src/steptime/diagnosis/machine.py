"""Rules about the machine: what held it back, what it is short of, and noise in which nothing else can be seen."""

from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.form import EvidenceNumber
from steptime.diagnosis.gain import gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.measurements.json_form import Interval
from steptime.measurements.noise import FOREIGN_CORES, MEMORY_LEFT_SHARE, STEAL_SHARE, THROTTLED_SHARE

_THROTTLES = ("cgroup_throttled_share", "gpu_throttled_share", "gpu_held_back_share")
_WIDE = 0.5
"""Half-width of a step time, relative, above which nothing is concluded on a noisy machine."""


def _noise(at: DiagnosedTrial, *names: str) -> Interval | None:
    known = [value for name in names if (value := at.summary.noise.get(name)) is not None]
    return Interval(max(known), max(known), max(known)) if known else None


def _held_back(at: DiagnosedTrial) -> Interval | None:
    return _noise(at, *_THROTTLES)


def _throttled(at: DiagnosedTrial, share: Interval) -> Claim | None:
    name = next(each for each in _THROTTLES if at.summary.noise.get(each) == share.value)
    who = "a container's quota" if name.startswith("cgroup") else "a GPU's limit of heat or power"
    claim = f"{who} held the machine back in {100 * share.value:.0f} % of the time"
    return Claim(claim, f"raise the limit: {who}", [], gain_without(share))


def _memory_used(at: DiagnosedTrial) -> Interval | None:
    left = at.summary.noise.get("memory_available_share")
    return None if left is None else Interval(1.0 - left, 1.0 - left, 1.0 - left)


def _full(at: DiagnosedTrial, used: Interval) -> Claim | None:
    batch = at.trial.batch_per_worker
    claim = f"{100 * used.value:.0f} % of the memory was in use: the next larger batch or worker may not fit"
    return Claim(claim, "use half the batch", [f"batch_per_worker={batch // 2}"] if batch > 1 else [])


def noise_of(at: DiagnosedTrial) -> Interval | None:
    """Return the half-width of the trial's step time where others used its machine; None if they did not."""
    foreign, steal = at.summary.noise.get("foreign_cpu_cores"), at.summary.noise.get("steal_share")
    time = at.summary.step_time_s
    if (foreign or 0.0) <= FOREIGN_CORES and (steal or 0.0) <= STEAL_SHARE:
        return None
    if time.mean is None or time.low is None or time.high is None:
        return None
    width = (time.high - time.low) / 2 / time.mean
    return Interval(width, width, width)


def _noisy(at: DiagnosedTrial, width: Interval) -> Claim | None:
    others = [
        EvidenceNumber(what=what, value=Interval(value, None, None), unit=unit)
        for what, value, unit in (
            ("cores that other programs kept busy", at.summary.noise.get("foreign_cpu_cores"), "count"),
            ("time that the host took from this machine", at.summary.noise.get("steal_share"), "share"),
        )
        if value is not None
    ]
    claim = f"other programs make the step uncertain by {100 * width.value:.0f} % to either side: nothing else is said"
    return Claim(claim, "measure again while nothing else runs, or with more launches", [], evidence=others)


THROTTLED = DiagnosisRule(
    "throttled",
    "time held back by a limit",
    _held_back,
    THROTTLED_SHARE,
    _throttled,
    "steps that are as long while no limit acts",
)
MEMORY = DiagnosisRule(
    "memory_nearly_full",
    "memory in use",
    _memory_used,
    1.0 - MEMORY_LEFT_SHARE,
    _full,
    "a launch with twice the batch that ends well",
)
NOISE = DiagnosisRule(
    "noise",
    "half-width of the step time",
    noise_of,
    _WIDE,
    _noisy,
    "as wide an interval on a machine where nothing else runs",
)
