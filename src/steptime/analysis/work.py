"""What a trial computes per second: tokens, FLOP/s of each device, and MFU with an honest denominator.

FLOPs are the model's: 6 for each multiply-accumulate of the forward pass's products of one sample, two forward and
twice as many backward (J. Kaplan et al., arXiv 2001.08361, appendix). Attention is counted; what is computed again is
not. MFU divides them by what the device multiplies at this precision: measured (``steptime peak``), else its data
sheet's dense figure, else there is none (A. Chowdhery et al., *PaLM*, arXiv 2204.02311, appendix B).

"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.errors import SteptimeError
from steptime.results.json_form import Interval, IntervalOverLaunches, JsonForm
from steptime.results.peaks import Denominator, StoredPeaks, peak_of, setting_of, share_of_peak
from steptime.results.records import Launch
from steptime.study.trial import Trial


class WorkRates(JsonForm):
    """What a trial computes per second."""

    tokens_per_s: IntervalOverLaunches[float | None]
    """Of all workers."""
    flop_per_sample: int | None
    flop_per_s_per_device: IntervalOverLaunches[float | None]
    peak_flop_per_s: Interval[float | None]
    """Of matrix products at the trial's precision, on a worker's device or cores."""
    peak_source: Literal["measured", "data sheet"] | None
    mfu: Interval[float | None]
    """FLOP/s over their peak; never a guess."""


def work_of(
    trial: Trial,
    samples_per_s: IntervalOverLaunches[float | None],
    machine: Mapping[str, Any],
    peaks: StoredPeaks,
    flop_per_sample: int | None = None,
) -> WorkRates:
    """Return what a trial computes per second.

    Args:
        trial: a configuration.
        samples_per_s: of all its workers.
        machine: the fingerprint of the machine that measured.
        peaks: measured on it.
        flop_per_sample: of a user's module, as its launches counted them; None if they could not.
    """
    gpus = [str(each.get("name")) for each in machine.get("gpus") or []] if trial.device == "cuda" else []
    peak = peak_of(setting_of(trial), gpus, peaks)
    workload = (trial.workload, tuple(trial.input_shape), trial.classes)
    return rates_of(workload, trial.workers, samples_per_s, peak, flop_per_sample)


def rates_of(
    workload: tuple[str, tuple[int, ...], int],
    workers: int,
    samples_per_s: IntervalOverLaunches[float | None],
    denominator: Denominator,
    flop_per_sample: int | None = None,
) -> WorkRates:
    """Return what workers compute per second, measured or predicted.

    Args:
        workload: its name, input shape and classes.
        workers: a device each.
        samples_per_s: of all of them.
        denominator: of MFU.
        flop_per_sample: of a user's module; None for that of the workload's layers.
    """
    name, input_shape, classes = workload
    flops = _flop_per_sample(name, input_shape, classes) if flop_per_sample is None else flop_per_sample
    entry = LIBRARY.get(name)
    tokens = input_shape[0] if entry is not None and entry.of_tokens else None
    rate = _scaled(samples_per_s, None if flops is None else flops / workers)
    peak, source = denominator
    return WorkRates(
        tokens_per_s=_scaled(samples_per_s, tokens),
        flop_per_sample=flops,
        flop_per_s_per_device=rate,
        peak_flop_per_s=peak,
        peak_source=source,
        mfu=share_of_peak(Interval(rate.value, rate.low, rate.high), peak),
    )


def counted_flops(record: object) -> int | None:
    """Return the FLOPs of a sample of a user's module, as its launch counted them; None if it has none."""
    if not isinstance(record, Launch) or not record.workers:
        return None
    found = record.workers[0].facts.get("own")
    flops = found.get("flop_per_sample") if isinstance(found, dict) else None
    return flops if isinstance(flops, int) else None


@cache
def _flop_per_sample(workload: str, input_shape: tuple[int, ...], classes: int) -> int | None:
    try:
        return costs(build_workload(workload, input_shape, classes)).model_flops
    except SteptimeError:  # of a plug-in that is not installed here
        return None


def _scaled(rate: IntervalOverLaunches[float | None], factor: float | None) -> IntervalOverLaunches[float | None]:
    if factor is None:
        return IntervalOverLaunches(None)
    bounds = (rate.value, rate.low, rate.high, rate.least, rate.most)
    return IntervalOverLaunches(*(None if each is None else each * factor for each in bounds))
