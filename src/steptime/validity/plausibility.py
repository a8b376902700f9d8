"""Whether a trial computes faster than its devices can: then something of its step is not done, or not timed.

Every figure errs on the side of the trial. Of the workload, products are counted that no algorithm in use can do
without. Of a device, the peak is what products of matrices reached on it (``steptime peak``), twice that, because the
machine may have been busy then; else its data sheet's, and a quarter more for clocks above the sheet's; of processors,
whatever was measured, at most what the fastest core that is sold could do on each of the machine's threads.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import build_workload
from steptime.errors import SteptimeError
from steptime.results.peaks import StoredPeaks, peak_of, setting_of
from steptime.study.trial import Trial

_MEASURED, _SHEET = 2.0, 1.25
_CLOCK_HZ = 7e9
"""The fastest processor sold turns up to 6.2e9 times a second (Intel's Core i9-14900KS)."""
_OF_A_CYCLE = {"fp32": 128.0}
"""FLOPs of a core: two units for 16 fused multiply-adds are 64 (AVX-512, Intel's optimization manual 248966)."""
_OF_A_TILE = 4096.0
"""Of other precisions: AMX makes 1024 of bf16 (same manual, chapter 20)."""


def implausible_trials(
    shortest_s: Iterable[tuple[Trial, float]], machine: Mapping[str, Any], peaks: StoredPeaks
) -> dict[str, str]:
    """Return why trials have no rank, by trial id; as ``implausible`` of each, by the step of the quickest launch."""
    found = {trial.id: implausible(trial, step_s, machine, peaks) for trial, step_s in shortest_s}
    return {trial_id: reason for trial_id, reason in found.items() if reason is not None}


def implausible(trial: Trial, step_s: float, machine: Mapping[str, Any], peaks: StoredPeaks) -> str | None:
    """Return why a trial cannot have computed all of its step in ``step_s``; None if it can, or nothing is known.

    Args:
        trial: what was timed.
        step_s: seconds of a step, of the quickest launch.
        machine: the fingerprint of the machine that measured; on other hosts, processors are not known.
        peaks: measured on it.
    """
    flops = _least_flops(trial.workload, tuple(trial.input_shape), trial.classes)
    limits = [each for each in (_peak(trial, machine, peaks), _ceiling(trial, machine)) if each is not None]
    if not flops or not limits or step_s <= 0.0:
        return None
    limit, source = min(limits)
    rate = flops * trial.batch_per_worker / step_s
    if rate <= limit:
        return None
    return (
        f"no device here is so fast: a worker would compute at least {rate:.3g} FLOP/s, and {source} allows "
        f"{limit:.3g}; a part of the step is not done or not timed"
    )


def _peak(trial: Trial, machine: Mapping[str, Any], peaks: StoredPeaks) -> tuple[float, str] | None:
    gpus = [str(each.get("name")) for each in machine.get("gpus") or []] if trial.device == "cuda" else []
    found, source = peak_of(setting_of(trial), gpus, peaks)
    if found.value is None:
        return None
    if source == "measured":
        return _MEASURED * (found.high or found.value), f"{_MEASURED:g} times the measured peak"
    return _SHEET * found.value, f"{_SHEET:g} times the data sheet's peak"


def _ceiling(trial: Trial, machine: Mapping[str, Any]) -> tuple[float, str] | None:
    threads = machine.get("machine_threads")
    elsewhere = trial.cluster is not None and trial.cluster.kind != "emulated"
    if trial.device != "cpu" or elsewhere or not isinstance(threads, int):
        return None
    of_a_cycle = _OF_A_CYCLE.get(trial.precision, _OF_A_TILE)
    return threads * _CLOCK_HZ * of_a_cycle / trial.workers, f"the fastest processor of {threads} threads"


@cache
def _least_flops(workload: str, input_shape: tuple[int, ...], classes: int) -> int | None:
    try:
        return costs(build_workload(workload, input_shape, classes)).least_flops
    except SteptimeError:  # of a plug-in that is not installed here, or a user's module
        return None
