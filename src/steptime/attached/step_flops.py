"""Arithmetic of one rank in a step, counted or by the rule of six for a transformer, and its share of a peak: MFU."""

from collections.abc import Sequence
from typing import Literal

from steptime.attached.form import RankArithmetic, Throughput
from steptime.attached.step_parts import KeptSteps, step_length
from steptime.results.attached_files import AttachedFiles, ProcessLines
from steptime.results.attached_lines import WeightsLine
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.results.peaks import Denominator, StoredPeaks, peak_of, share_of_peak

_OF_A_TOKEN = 6
"""FLOP for each parameter: 2 forward, 4 backward (Kaplan et al. 2020, section 2.1), without attention's products."""
_TO_COUNT = "attach --flops counts them"
_MORE_PASSES = "it has backward passes whose gradients are dropped"
_TWO_TEXTS = "batches hold two texts of different lengths, as of an encoder and a decoder"
_NO_PRECISION = "the precision of its products is not on record"
_UNEQUAL = "ranks differ in precision or device"
Setting = tuple[str, str, int]
"""Device, precision and threads."""


def step_flops(
    processes: Sequence[ProcessLines], kept: KeptSteps | None, trained: Throughput | None
) -> tuple[float | None, Literal["counted", "6 N"] | None, str | None]:
    """Return FLOP of a rank in a step, how that is known, and else why not.

    By the rule of six only where each rank has the whole of a transformer of which all parameters are trained, and the
    tokens of its batches are known.

    Args:
        processes: all of them.
        kept: the steps of the attempt that is shown.
        trained: what these train on.
    """
    lines = [line for process in processes for line in process.flops[-1:]]
    counted = [float(line.forward + line.backward) for line in lines if not line.reason]
    if counted:
        return sum(counted) / len(counted), "counted", None
    if lines or kept is None or trained is None:
        why = f"FLOP of a step are not known: {lines[0].reason}" if lines else "no step is on record"
        return None, None, why
    weights = _latest_weights(kept)
    if not any(line.attention for line in weights):
        return None, None, f"FLOP of a step are not known: no attention was seen; {_TO_COUNT}"
    ranks = len(kept.attempt.ranks)
    whole = [line.elements for line in weights if line.attention and (kept.attempt.world == 1 or line.data_parallel)]
    dropped = any(step.dropped for number in kept.numbers for step in kept.attempt.steps[number])
    if dropped or len(whole) < ranks or len(set(whole)) != 1 or not whole[0]:
        why = _MORE_PASSES if dropped else _why_not_whole(weights)
        return None, None, f"FLOP of a step are not known: {why}; {_TO_COUNT}"
    two = any(step.targets for number in kept.numbers for step in kept.attempt.steps[number])
    if two or trained.tokens.per_step is None:
        reason = _TWO_TEXTS if two else trained.tokens.reason
        return None, None, f"tokens of a step are not known ({reason}); {_TO_COUNT}"
    return float(_OF_A_TOKEN * whole[0]) * trained.tokens.per_step / ranks, "6 N", None


def _why_not_whole(weights: Sequence[WeightsLine]) -> str:
    if any(line.frozen for line in weights):
        return "some parameters are not trained"
    if any(line.routed for line in weights):
        return "a token meets some of the weights alone, those of its experts"
    return "parameters are not whole on each rank"


def arithmetic(
    files: AttachedFiles, kept: KeptSteps, trained: Throughput | None, flops: float | None, reason: str | None
) -> RankArithmetic:
    """Return what one rank computes in a second, and its share of what its device could.

    Args:
        files: of the run.
        kept: its steps.
        trained: what these train on.
        flops: of a rank in a step; None if that is not known.
        reason: why.
    """
    rate = NOT_MEASURED if flops is None else _rate(flops, kept, trained)
    setting = setting_of_run(kept)
    peak: Denominator = (NOT_MEASURED, None)
    if isinstance(setting, str):
        reason = reason or setting
    else:
        peak = _peak(setting, kept, files.peaks)
        reason = reason or (None if peak[0].value is not None else _without_peak(setting))
    return RankArithmetic(
        flop_per_s=rate,
        precision=None if isinstance(setting, str) else setting[1],
        peak_flop_per_s=peak[0],
        peak_source=peak[1],
        mfu=share_of_peak(rate, peak[0]),
        reason=reason,
    )


def _rate(flops: float, kept: KeptSteps, trained: Throughput | None) -> Interval[float | None]:
    """Return FLOP/s; steps of more tokens take longer, so by the rate of tokens where these are known."""
    tokens = trained.tokens if trained is not None else None
    if tokens is not None and tokens.per_step and tokens.per_s.value is not None:
        of_token = flops / tokens.per_step
        known = tokens.per_s
        bounds = (known.value, known.low, known.high)
        return Interval(*(None if bound is None else bound * of_token for bound in bounds))
    step_s = step_length(kept)
    if not step_s.value:
        return NOT_MEASURED
    known_within = step_s.low and step_s.high
    return Interval(
        flops / step_s.value,
        flops / step_s.high if known_within and step_s.high else None,
        flops / step_s.low if known_within and step_s.low else None,
    )


def setting_of_run(kept: KeptSteps) -> Setting | str:
    """Return device, precision and threads of every rank, as ``steptime peak`` measures them, or why there is none."""
    weights = _latest_weights(kept)
    settings = {(line.device, tuple(line.precisions), line.threads) for line in weights if line.precisions}
    if not settings or len(weights) < len(kept.attempt.ranks):
        return _NO_PRECISION
    if len(settings) > 1:
        return _UNEQUAL
    ((device, precisions, threads),) = settings
    if len(precisions) > 1:
        return f"its products are in {' and '.join(precisions)}, in shares that are not known"
    return device, precisions[0], threads


def settings_of_files(files: AttachedFiles) -> list[Setting]:
    """Return device, precision and threads of all processes whose products are in one precision."""
    lines = [process.weights[-1] for process in files.processes if process.weights]
    known = [line for line in lines if len(line.precisions) == 1]
    return list(dict.fromkeys((line.device, line.precisions[0], line.threads) for line in known))


def _latest_weights(kept: KeptSteps) -> list[WeightsLine]:
    return [process.weights[-1] for process in kept.attempt.processes.values() if process.weights]


def _peak(setting: Setting, kept: KeptSteps, peaks: StoredPeaks) -> Denominator:
    names = [name for process in kept.attempt.processes.values() for name in process.device_names]
    return peak_of(setting, [name.partition(": ")[2] for name in names] if setting[0] == "cuda" else [], peaks)


def _without_peak(setting: Setting) -> str:
    device, precision, _ = setting
    if device == "cpu":
        return f"the peak of this processor in {precision} was not measured: steptime peak DIR"
    return f"the peak of this device in {precision} is in no data sheet here, and was not measured: steptime peak DIR"
