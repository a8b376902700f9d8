"""From a trial's ablation launches to where the time of its step goes."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np

from steptime.analysis.ablation import form
from steptime.analysis.ablation.accounts import MARKS, accounts, marked_phases
from steptime.analysis.ablation.imbalance import ComputeImbalance, imbalance
from steptime.analysis.ablation.nested_stages import nested_phases
from steptime.analysis.ablation.pop import pop_efficiencies, why_no_efficiencies
from steptime.analysis.ablation.stages import (
    Array,
    StageTimes,
    communication_s,
    incomplete_stages,
    over_blocks,
    stage_times_of,
    uncertainty_s,
)
from steptime.analysis.flags import counted
from steptime.catalog.choices import strategy_named
from steptime.phases import NAMES, PHASES, REST
from steptime.results.ablation_records import AblationLaunch
from steptime.results.json_form import Interval
from steptime.study.trial import Trial

_HEAT_STEPS = 120
_ROUNDING = 1e-9
"""Of a step: what is left of it below this is what floating point leaves of a sum."""
_NEVER_OVERLAPPED = tuple(phase.name for phase in PHASES if not phase.overlaps)
How = str


def break_down(
    trial: Trial, launches: Sequence[AblationLaunch], timed_mean_s: Sequence[float]
) -> form.StepBreakdown | None:
    """Return the breakdown of the step of ``trial``; None when no ablation launch ended well.

    A phase comes from the ablation where the ablation has it, and from the framework's marks elsewhere. Phases that no
    communication overlaps are taken from the marks too where these know them better, unless that keeps the phases from
    summing to the step (``closing_phases``). What the phases leave of the step is the residual.

    Args:
        trial: whose launches they are.
        launches: its ablation launches.
        timed_mean_s: the mean step of each of its timing launches, to compare with.
    """
    good = [launch for launch in launches if launch.status == "ok" and launch.workers]
    if not good:
        return None
    all_stage_times = stage_times_of(good)
    synchronous = strategy_named(trial.strategy).synchronous
    cuda = trial.device == "cuda"
    nested = nested_phases(all_stage_times, synchronous=synchronous, workers=trial.workers, cuda=cuda)
    native = _native_phases(good, synchronous=synchronous)
    steps = [stage_times.means("step") for stage_times in all_stage_times]
    step = over_blocks(steps)
    compared = accounts(good, all_stage_times, nested.launches)
    differing = {account.phase for account in compared if account.source == MARKS and account.agrees is False}
    by_ablation = _ablation_phases(trial, all_stage_times, nested.launches)
    phases = closing_phases(by_ablation, native, step.value, differing)
    known = sum(phase.value_s for phase in phases.values() if phase)
    phases = within_step(phases, step.value)
    phases[REST] = _residual(steps, nested.launches, phases)
    undecided = [name for name in nested.undecided if phases[name] is None]
    uneven = imbalance(all_stage_times)
    refused = why_no_efficiencies(nested.launches, steps, synchronous=synchronous)
    persistent = uneven.persistent_blocks if uneven else None
    return form.StepBreakdown(
        launches=len(good),
        step_s=_phase(step, "direct"),
        phases=phases,
        undecided=undecided,
        more_launches=nested.more_launches if undecided else None,
        closure_error=round(abs(known - step.value) / step.value, 9),
        native={name: phase for name, phase in native.items() if phase},
        accounts=compared,
        overlap=_overlap(good, all_stage_times, phases["comm_exposed"], trial.workers, synchronous=synchronous),
        imbalance=_imbalance(uneven, good[0], all_stage_times[0]),
        input_s=_input(all_stage_times),
        instrumentation=_paired(all_stage_times, "marked", "step"),
        against_timing=_against(steps, timed_mean_s),
        clock_uncertainty_s=max(uncertainty_s(launch.workers) for launch in good),
        pop=None if refused else pop_efficiencies(nested.launches, steps, persistent, phases["input_wait"]),
        pop_refused=refused,
        flags=_flags(trial, good, all_stage_times),
    )


def _native_phases(launches: Sequence[AblationLaunch], *, synchronous: bool) -> dict[str, form.Phase | None]:
    """Return phases by the framework's marks."""
    marks = [marked_phases(launch, synchronous=synchronous) for launch in launches]
    return {name: _over([_as_array(marked.get(name)) for marked in marks], "direct") for name in NAMES}


def _ablation_phases(
    trial: Trial, all_stage_times: Sequence[StageTimes], launches: Sequence[Mapping[str, Array | None]]
) -> dict[str, form.Phase | None]:
    """Return phases by the ablation; ``launches`` have those of each launch."""
    exchanged = any("exchange" in stage_times.stages for stage_times in all_stage_times)
    return {
        name: _over([phases.get(name) for phases in launches], _how(name, trial, exchanged=exchanged)) for name in NAMES
    }


def _input(all_stage_times: Sequence[StageTimes]) -> form.Phase | None:
    times = [stage_times.means("input") if "input" in stage_times.stages else None for stage_times in all_stage_times]
    return _over(times, "direct")


def _flags(trial: Trial, launches: Sequence[AblationLaunch], all_stage_times: Sequence[StageTimes]) -> list[str]:
    noticed = counted([launch.flags for launch in launches], [launch.noise for launch in launches])
    return noticed + incomplete_stages(trial, all_stage_times)


def closing_phases(
    by_ablation: Mapping[str, form.Phase | None],
    native: Mapping[str, form.Phase | None],
    step_s: float,
    differing: Collection[str],
) -> dict[str, form.Phase | None]:
    """Return one account of each phase: of two that differ, the account with which the phases sum to the step.

    Of all ways to choose between accounts that were shown to differ, the way is taken whose sum is nearest to the step;
    of two as near, the way that takes more of the accounts that are known more narrowly. The interval of a phase whose
    accounts differ reaches to both, which stay in ``Breakdown.accounts``.

    Args:
        by_ablation: phases by the ablation, None if it cannot tell them.
        native: phases by the framework's marks.
        step_s: seconds of the step.
        differing: names of the phases whose two accounts were shown to differ.
    """
    chosen = {name: _better(name, by_ablation[name], native[name]) for name in by_ablation}
    choices: dict[str, list[form.Phase]] = {}
    for name in _NEVER_OVERLAPPED:
        one, other, preferred = by_ablation[name], native[name], chosen[name]
        if one and other and preferred and name in differing:
            choices[name] = [preferred, other if preferred is one else one]
    fixed = sum(phase.value_s for name, phase in chosen.items() if phase and name not in choices)
    ways = product(*choices.values())  # the preferred accounts come first, and min takes the first of equals
    nearest = min(ways, key=lambda way: abs(fixed + sum(phase.value_s for phase in way) - step_s))
    taken = zip(choices, nearest, strict=True)
    return {**chosen, **{name: _reaching(phase, *choices[name]) for name, phase in taken}}


def within_step(phases: Mapping[str, form.Phase | None], step_s: float) -> dict[str, form.Phase | None]:
    """Return phases without negative values and bounds, whose sum is the step at most.

    What accounts of different sources have too much together is taken from each by the square of its width, as least
    squares do, and from all alike where no width is known.
    """
    values = {name: max(0.0, phase.value_s) for name, phase in phases.items() if phase}
    excess = sum(values.values()) - step_s
    while excess > _ROUNDING * step_s:
        widths = {name: _width(phase) for name, value in values.items() if value > 0.0 and (phase := phases[name])}
        known = all(np.isfinite(width) for width in widths.values()) and any(widths.values())
        weights = {name: width**2 if known else values[name] for name, width in widths.items()}
        total = sum(weights.values())
        values |= {name: max(0.0, values[name] - excess * each / total) for name, each in weights.items()}
        excess = sum(values.values()) - step_s
    return {name: phase and _at(phase, values[name]) for name, phase in phases.items()}


def _at(phase: form.Phase, value_s: float) -> form.Phase:
    """Return a phase with another value, inside bounds that are not negative."""
    low = None if phase.low_s is None else min(value_s, max(0.0, phase.low_s))
    high = None if phase.high_s is None else max(value_s, phase.high_s)
    return phase.model_copy(update={"value_s": value_s, "low_s": low, "high_s": high})


def _reaching(phase: form.Phase, *accounts: form.Phase) -> form.Phase:
    """Return a phase whose interval reaches to all ``accounts`` of it: one of them is wrong, and which is a guess."""
    lows, highs = ([getattr(each, end) for each in accounts] for end in ("low_s", "high_s"))
    values = [each.value_s for each in accounts]
    low = min(values + [each for each in lows if each is not None])
    high = max(values + [each for each in highs if each is not None])
    return phase.model_copy(update={"low_s": low, "high_s": high})


def _better(name: str, by_ablation: form.Phase | None, native: form.Phase | None) -> form.Phase | None:
    if by_ablation is None or native is None:
        return by_ablation or native
    return native if name in _NEVER_OVERLAPPED and _width(native) < _width(by_ablation) else by_ablation


def _width(phase: form.Phase) -> float:
    return float("inf") if phase.low_s is None or phase.high_s is None else phase.high_s - phase.low_s


def _how(name: str, trial: Trial, *, exchanged: bool) -> How:
    """What cannot be there is known directly; all else is a difference of runs."""
    impossible = (
        (name == "h2d" and trial.device != "cuda")
        or (name == "sync_wait" and (trial.workers == 1 or not strategy_named(trial.strategy).synchronous))
        or (name == "comm_exposed" and trial.workers == 1 and not exchanged)
    )
    return "direct" if impossible else "derived"


def _residual(
    steps: Sequence[Array], all_by_ablation: Sequence[dict[str, Array | None]], phases: dict[str, form.Phase | None]
) -> form.Phase:
    """What the phases leave of the step; its interval holds what the ablation leaves open."""
    rest = []
    for step, by_ablation in zip(steps, all_by_ablation, strict=True):
        left = step.copy()
        for name, phase in phases.items():
            own = by_ablation.get(name)
            if phase:
                left -= phase.value_s if phase.how == "direct" or own is None else own
        rest.append(np.where(np.abs(left) > _ROUNDING * step, left, 0.0))
    left_s = over_blocks(rest)
    return _at(_phase(left_s, "derived"), max(0.0, left_s.value))


def _overlap(
    launches: Sequence[AblationLaunch],
    all_stage_times: Sequence[StageTimes],
    exposed: form.Phase | None,
    workers: int,
    *,
    synchronous: bool,
) -> form.Overlap | None:
    found = [
        communication_s(launch, stage_times, synchronous=synchronous)
        for launch, stage_times in zip(launches, all_stage_times, strict=True)
    ]
    known = [each for each in found if each]
    if workers == 1 or exposed is None or len(known) < len(found):
        return None
    totals, how = [each[0] for each in known], known[0][1]
    total = over_blocks(totals)
    hidden = over_blocks([np.clip(each - exposed.value_s, 0.0, each) for each in totals])
    return form.Overlap(
        ratio=hidden.value / total.value if total.value > 0.0 else None,
        communication_s=_phase(total, how),
        comm_hidden_s=_phase(hidden, "derived"),
    )


def _imbalance(
    found: ComputeImbalance | None, launch: AblationLaunch, stage_times: StageTimes
) -> form.Imbalance | None:
    if found is None:
        return None
    heat = stage_times.compute()[:, :_HEAT_STEPS]
    return form.Imbalance(
        factor=found.factor.value,
        factor_low=found.factor.low,
        factor_high=found.factor.high,
        percent=100.0 * (found.factor.value - 1.0),
        persistent=found.persistent.value,
        transient=found.transient.value,
        blamed_worker=found.blamed_worker,
        workers=[
            form.WorkerPhases(
                rank=worker.rank, host=worker.host, compute_s=compute, heat_s=[float(each) for each in row]
            )
            for worker, compute, row in zip(launch.workers, found.compute_s, heat, strict=True)
        ],
    )


def _paired(all_stage_times: Sequence[StageTimes], upper: str, lower: str) -> Interval | None:
    if not all(upper in each.stages for each in all_stage_times):
        return None
    return over_blocks([each.means(upper) / each.means(lower) - 1.0 for each in all_stage_times])


def _against(steps: Sequence[Array], timed: Sequence[float]) -> Interval | None:
    """Compare with the timing launches as independent ones, each pair of launches of the same index."""
    if not timed:
        return None
    reference = float(np.mean(timed))
    return over_blocks([step / reference - 1.0 for step in steps])


def _over(values: Sequence[Array | None], how: How) -> form.Phase | None:
    known = [each for each in values if each is not None]
    return _phase(over_blocks(known), how) if known and len(known) == len(values) else None


def _as_array(value: float | None) -> Array | None:
    return None if value is None else np.array([value])


def _phase(found: Interval, how: How) -> form.Phase:
    return form.Phase.model_validate({"value_s": found.value, "low_s": found.low, "high_s": found.high, "how": how})
