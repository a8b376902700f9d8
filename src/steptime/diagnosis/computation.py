"""Rules about what workers compute: the update, the batch, the framework's own time, and the precision."""

from steptime.diagnosis.diagnosed_trial import DiagnosedTrial
from steptime.diagnosis.form import EvidenceNumber
from steptime.diagnosis.gain import gain_of_batch, gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.results.json_form import Interval

_NOTABLE = 0.1
_NOTABLE_FIXED = 0.2
_LARGER = 4
"""Times the batch: the advice that is given."""
_UPDATE_OPTIONS = ("update", "arrays_per_update", "multi_tensor")
_OVERHEAD_OPTIONS = ("bulk_nodes", "onednn", "windows", "ideep")
_ON_GPUS = ("compile",)
"""Beside them; on processors their value ``auto`` changes nothing."""
_REPLAYED = {"compile": "yes", "compile_mode": "cuda_graphs"}
_NOTABLE_IDLE = 0.2
_BUSY_OPEN = 0.05
"""Of the share of time with a kernel at work, as NVML samples it: a belief, beside no sum of kernels yet."""
_QUICKER = {"fp32": "bf16", "tf32": "bf16"}


def _updated(at: DiagnosedTrial) -> Interval | None:
    return at.share("update")


def _update_bound(at: DiagnosedTrial, share: Interval) -> Claim | None:
    options = at.better_options(_UPDATE_OPTIONS)
    claim = f"the update takes {100 * share.value:.0f} % of the step"
    if not options:
        return None
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    return Claim(claim, f"use {named}", at.overrides(options), gain_without(share))


def _not_arithmetic(at: DiagnosedTrial) -> Interval | None:
    """The share of the step that is neither arithmetic, however slow a core is, nor input or waiting."""
    passes, computed = at.share("forward", "backward"), at.computing_s
    if passes is None or computed is None or at.breakdown is None:
        return None
    step_s = at.breakdown.step_s.value_s
    least, most = (max(0.0, passes.value - each / step_s) for each in reversed(computed))
    return Interval((least + most) / 2, least, most)


def _fixed(at: DiagnosedTrial) -> Interval | None:
    """What does not grow with the batch: the exchange, the update, and the framework's time in both passes."""
    own, others = _not_arithmetic(at), at.share("comm_exposed", "update")
    if own is None or others is None or own.low is None or own.high is None:
        return None
    low = own.low + (others.value if others.low is None else others.low)
    high = own.high + (others.value if others.high is None else others.high)
    return Interval((low + high) / 2, max(0.0, low), min(1.0, high))


def _small_batch(at: DiagnosedTrial, fixed: Interval) -> Claim | None:
    batch = at.trial.batch_per_worker
    return Claim(
        f"{100 * (fixed.low or 0):.0f} to {100 * (fixed.high or 1):.0f} % of the step of batch {batch} would not grow "
        "with the batch",
        f"use a batch of {_LARGER * batch}, which changes what is learned: the learning rate must follow",
        [f"batch_per_worker={_LARGER * batch}"],
        gain_of_batch(fixed, _LARGER),
    )


def _overhead(at: DiagnosedTrial, own: Interval) -> Claim | None:
    options = at.better_options(_OVERHEAD_OPTIONS + (_ON_GPUS if at.trial.device == "cuda" else ()))
    if not options:
        return None
    named = ", ".join(f"{name}={value}" for name, value in options.items())
    evidence = []
    if at.trivial_step_s is not None and at.breakdown is not None:
        trivial = at.trivial_step_s / at.breakdown.step_s.value_s
        what = "the step of the smallest workload here, over this one"
        evidence = [EvidenceNumber(what=what, value=Interval(trivial, None, None), unit="share")]
    claim = (
        f"{100 * (own.low or 0):.0f} to {100 * (own.high or 1):.0f} % of the step is the framework's own time in "
        "forward and backward"
    )
    return Claim(claim, f"use {named}", at.overrides(options), gain_without(own), evidence)


def _computed_on_gpu(at: DiagnosedTrial) -> Interval | None:
    return at.share("forward", "backward") if at.trial.device == "cuda" else None


def _precise(at: DiagnosedTrial, share: Interval) -> Claim | None:
    """Matrix units compute half-precision products two times as fast and more; memory moves half the bytes."""
    wanted = _QUICKER.get(at.trial.precision)
    if wanted is None or at.manifest is None or wanted not in at.manifest.precisions_on("cuda"):
        return None
    claim = f"{100 * share.value:.0f} % of the step computes in {at.trial.precision}"
    return Claim(claim, f"compute products in {wanted}", [f"precision={wanted}"], gain_without(share, (0.0, 0.75)))


def _idle(at: DiagnosedTrial) -> Interval | None:
    """The share of time in which no kernel was at work, less what steps wait for input."""
    busy, waiting = at.summary.noise.get("gpu_busy_share"), at.share("input_wait")
    if busy is None or at.trial.device != "cuda":
        return None
    idle = max(0.0, 1.0 - busy - (waiting.value if waiting else 0.0))
    return Interval(idle, max(0.0, idle - _BUSY_OPEN), min(1.0, idle + _BUSY_OPEN))


def _host_bound(at: DiagnosedTrial, idle: Interval) -> Claim | None:
    """Replay the calls of a step as CUDA graphs; where that is on or unknown, give each call more to compute."""
    claim = f"the device has no kernel at work for {100 * idle.value:.0f} % of the time: the host is the limit"
    options = {name: value for name, value in _REPLAYED.items() if at.option(name) not in {None, value}}
    if at.option("compile") is not None and options:
        named = ", ".join(f"{name}={value}" for name, value in options.items())
        return Claim(claim, f"use {named}, or a larger batch", at.overrides(options), gain_without(idle))
    batch = _LARGER * at.trial.batch_per_worker
    change = f"use a batch of {batch}, which changes what is learned: the learning rate must follow"
    return Claim(claim, change, [f"batch_per_worker={batch}"], gain_of_batch(idle, _LARGER))


UPDATE = DiagnosisRule(
    "update_bound", "update", _updated, _NOTABLE, _update_bound, "the update takes as long with the change"
)
BATCH = DiagnosisRule(
    "small_batch",
    "what does not grow with the batch",
    _fixed,
    _NOTABLE_FIXED,
    _small_batch,
    "a step takes four times as long with four times the batch",
    believed=True,
)
OVERHEAD = DiagnosisRule(
    "framework_overhead",
    "passes beyond their arithmetic",
    _not_arithmetic,
    _NOTABLE,
    _overhead,
    "passes take four times as long with four times the batch",
    believed=True,
)
HOST = DiagnosisRule(
    "host_bound",
    "time without a kernel at work",
    _idle,
    _NOTABLE_IDLE,
    _host_bound,
    "a step takes as long when it is replayed as CUDA graphs",
    believed=True,
)
PRECISION = DiagnosisRule(
    "precision_unused",
    "forward and backward",
    _computed_on_gpu,
    _NOTABLE_FIXED,
    _precise,
    "passes take as long in half precision",
)
