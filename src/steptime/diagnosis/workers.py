"""Rules about workers beside each other: stragglers, and more or fewer threads than cores.

Rules about the machine: what held it back, what it is short of, and noise in which nothing else can be seen.
"""

from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.form import EvidenceNumber
from steptime.diagnosis.gain import gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.flags import FOREIGN_CORES, MEMORY_LEFT_SHARE, STEAL_SHARE, THROTTLED_SHARE
from steptime.results.json_form import Interval
from steptime.units import MOST_PERCENT

_NOTABLE_WAIT = 0.05
_IDLE = 2.0
"""Cores for each compute thread from which on some are idle."""


def _waited(at: DiagnosedTrial) -> Interval | None:
    return at.share("sync_wait") if at.trial.workers > 1 and at.strategy.synchronous else None


def _one_slow(at: DiagnosedTrial, share: Interval) -> Claim | None:
    imbalance = at.summary.imbalance
    if imbalance is None or imbalance.blamed_worker is None:
        return None
    rank = imbalance.blamed_worker
    host = next((each.host for each in imbalance.workers if each.rank == rank), "its host")
    colocated = at.trial.server_placement == "colocated"
    evidence = EvidenceNumber(
        what=f"longer computing of worker {rank}", value=Interval(imbalance.persistent, None, None), unit="share"
    )
    return Claim(
        f"worker {rank} on {host} computes {100 * imbalance.persistent:.0f} % longer than the mean, and others wait",
        "give servers cores of their own" if colocated else f"find what else worker {rank} or its host does",
        ["server_placement=own"] if colocated else [],
        # The slow worker itself waits for none: of n workers the others wait n / (n - 1) times the mean.
        gain_without(_times(share, at.trial.workers / (at.trial.workers - 1)), (0.5, 1.0)),
        [evidence],
    )


def _now_and_then(at: DiagnosedTrial, share: Interval) -> Claim | None:
    imbalance = at.summary.imbalance
    if imbalance is None or imbalance.blamed_worker is not None or imbalance.transient < imbalance.persistent:
        return None
    evidence = EvidenceNumber(
        what="imbalance that changes hands", value=Interval(imbalance.transient, None, None), unit="share"
    )
    change = "keep other programs from the workers' cores, and look for pauses that come with some steps"
    claim = f"workers wait {100 * share.value:.0f} % of the step for whoever is slow in it, not always the same"
    return Claim(claim, change, [], gain_without(share), [evidence])


def _times(share: Interval, factor: float) -> Interval:
    low, high = (None if each is None else each * factor for each in (share.low, share.high))
    return Interval(share.value * factor, low, high)


def _threads_for_a_core(at: DiagnosedTrial) -> Interval | None:
    if at.trial.device != "cpu" or not at.cores or at.trial.cluster is not None:
        return None
    return Interval(at.busy / at.cores, at.busy / at.cores, at.busy / at.cores)


def _too_many(at: DiagnosedTrial, ratio: Interval) -> Claim | None:
    cores = int(at.cores or 1)
    claim = f"{at.busy} busy threads share {cores} cores and take turns"
    fit = max(1, (cores - at.trial.servers) // at.trial.workers)
    if at.trial.threads > fit:
        waste = 1.0 - 1.0 / ratio.value
        gain = gain_without(Interval(waste, waste, waste), (-0.2, 1.0))
        return Claim(claim, "use as many threads as cores", [f"threads_per_worker={fit}"], gain)
    lost = at.share("comm_exposed", "sync_wait")
    fewer = max(1, cores - at.trial.servers)
    if fewer >= at.trial.workers:
        return Claim(claim, "use a machine with more cores")
    gain = gain_without(lost, (-0.2, 1.0)) if lost else Interval(None, None, None)
    return Claim(claim, f"use {fewer} worker{'s'[: fewer > 1]} here", [f"workers={fewer}"] if fewer > 1 else [], gain)


def _cores_for_a_thread(at: DiagnosedTrial) -> Interval | None:
    ratio = _threads_for_a_core(at)
    if ratio is not None:
        return Interval(1.0 / ratio.value, 1.0 / ratio.value, 1.0 / ratio.value)
    gpus = len(at.machine.get("gpus") or [])
    if at.trial.device != "cuda" or not gpus or at.trial.cluster is not None:
        return None
    return Interval(gpus / at.trial.workers, gpus / at.trial.workers, gpus / at.trial.workers)


def _too_few(at: DiagnosedTrial, ratio: Interval) -> Claim | None:
    """One process where one per device is usual, or one thread where there are cores for several."""
    if at.trial.device == "cuda":
        workers = round(ratio.value * at.trial.workers)
        claim = f"{at.trial.workers} of {workers} GPUs of the host train"
        idle = 1.0 - 1.0 / ratio.value
        return Claim(claim, f"use {workers} workers", [f"workers={workers}"], gain_without(Interval(idle, idle, idle)))
    computing = at.share("forward", "backward", "update")
    cores = int(at.cores or 1)
    threads = max(1, (cores - at.trial.servers) // at.trial.workers)
    if computing is None or threads <= at.trial.threads:
        return None
    saved = 1.0 - at.trial.threads / threads
    scaled = _times(computing, saved)
    return Claim(
        f"{at.busy} of {cores} cores compute",
        f"use {threads} threads for each worker",
        [f"threads_per_worker={threads}"],
        gain_without(scaled),
    )


PERSISTENT = DiagnosisRule(
    "straggler",
    "waiting for workers",
    _waited,
    _NOTABLE_WAIT,
    _one_slow,
    "another worker is as slow when ranks are placed otherwise",
)
TRANSIENT = DiagnosisRule(
    "transient_stragglers",
    "waiting for workers",
    _waited,
    _NOTABLE_WAIT,
    _now_and_then,
    "workers wait as long on an idle machine",
)
OVERSUBSCRIBED = DiagnosisRule(
    "oversubscribed_cores",
    "busy threads for each core",
    _threads_for_a_core,
    1.0,
    _too_many,
    "as many threads as cores give no more samples per second",
    "ratio",
    alone=True,
)
IDLE = DiagnosisRule(
    "idle_devices",
    "cores or GPUs for each thread or worker",
    _cores_for_a_thread,
    _IDLE - 0.01,
    _too_few,
    "all of them give no more samples per second",
    "ratio",
    alone=True,
)


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
    busy = at.summary.noise.get("foreign_cpu_cores")
    used = f"other programs used {busy:.2g} cores" if busy else "the host took time from this machine"
    half = "by more than a factor of 4" if width.value > MOST_PERCENT else f"{100 * width.value:.0f} % to either side"
    claim = f"too noisy to judge: {used}, and the step time is uncertain, {half}"
    return Claim(claim, "measure again while nothing else runs, or with more launches", [], evidence=others)


THROTTLED = DiagnosisRule(
    "throttled",
    "time held back by a limit",
    _held_back,
    THROTTLED_SHARE,
    _throttled,
    "steps are as long while no limit acts",
)
MEMORY = DiagnosisRule(
    "memory_nearly_full",
    "memory in use",
    _memory_used,
    1.0 - MEMORY_LEFT_SHARE,
    _full,
    "a launch with twice the batch ends well",
)
NOISE = DiagnosisRule(
    "noise",
    "half-width of the step time",
    noise_of,
    _WIDE,
    _noisy,
    "the interval is as wide on an idle machine",
)
