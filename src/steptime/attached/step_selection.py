"""Which steps of an attached run its parts are means of: steady ones of one kind that no other work touches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from steptime.attached.attempts import Attempt
from steptime.attached.device_steps import device_lines, queued_s
from steptime.attached.exchange import split_exchange
from steptime.attached.step_parts import FEWEST, KeptSteps
from steptime.results.attached_lines import StepLine
from steptime.statistics.launch_times import reduce_times
from steptime.statistics.warmup import is_transient
from steptime.units import format_seconds

_MOST_KINDS = 3
"""Of steps, by their numbers of micro-steps, that are told apart."""
_MOST_CHANGES = 2
"""From one kind of steps to another, for each kind, of a loop that changes for good; more take turns."""
_SPOILING = frozenset(("fault", "evaluated"))
"""Flags of steps that are left out."""
_MAIN = 0.9
"""Share of the time, from which on one kind of steps is shown alone whatever comes between."""
_FEW = 8
"""From so many steps on, the first steady one is looked for; of fewer the first is left out."""
_STARTING = 2.0
"""Times the median step, above which the first steps are not steady whatever follows."""
_AT_ONCE, _LITTLE = 2, 0.03
"""Steps, and share of them, that are left out without asking whether they differ by more than chance."""
_SOME = 0.1
"""Share of the steps, below which those without an evaluation beside them are too few to be shown alone."""
_MOST_UNCERTAIN = 0.5
"""Of the exchange, that the clocks may leave open."""


def kept_steps(attempt: Attempt) -> KeptSteps:
    """Return the steps of an attempt that are alike: steady, divided, and not touched by an evaluation or a checkpoint.

    One that follows an evaluation or a checkpoint of some rank holds what the others wait for it; where an evaluation
    follows nearly every step, those beside one are kept, without its time. Where at least half of them save a
    checkpoint, it is a part of the step. Where only some steps have all their collectives on record, these alone are
    kept.
    """
    steps = attempt.steps
    divided = {number: own for number, own in steps.items() if not any(step.is_undivided for step in own)}
    steps = divided or steps
    saving = _saving(steps)
    calm, near_evaluation = (saving, False) if saving else _undisturbed(steps)
    alike = _of_main_kind(steps, calm)
    steady = alike[_first_steady(steps, alike) :]
    kept = _with_exchange(attempt, steady)
    device = {} if near_evaluation or saving else device_lines(attempt, kept.numbers)
    by_device = replace(kept, device=device, numbers=list(device)) if device else kept
    if len(attempt.ranks) == 1 and not device:
        by_device = replace(by_device, queued_s=queued_s(*attempt.processes.values()))
    left_out = {
        "with parts that add up to more than the step": len(attempt.steps) - len(steps),
        "compiled, incomplete, or beside an evaluation or a checkpoint": len(steps) - len(calm),
        "of another kind (micro-steps, or replays of graphs)": len(calm) - len(alike),
        "before steps were steady": len(alike) - len(steady),
        "without all collectives on record": len(steady) - len(kept.numbers),
        "whose events on the device were not read": len(kept.numbers) - len(by_device.numbers),
    }
    return replace(by_device, near_evaluation=near_evaluation, with_saves=bool(saving), left_out_for=left_out)


def _saving(steps: Mapping[int, Sequence[StepLine]]) -> list[int]:
    """Return the steps of a loop that saves in at least half of them, with those that do not; none of any other."""
    own_work = {
        number: any("save" in step.regions for step in own)
        for number, own in steps.items()
        if not any(_is_spoilt(step) or step.apart is not None for step in own)
    }
    saves = sum(own_work.values()) + 1  # another may follow the last step
    return list(own_work) if len(own_work) >= _FEW and 2 * saves >= len(own_work) else []


def _undisturbed(steps: Mapping[int, Sequence[StepLine]]) -> tuple[list[int], bool]:
    """Return the steps that no other work touches, and whether evaluations lie beside these, as beside all others."""
    spoilt = {number for number, own in steps.items() if any(map(_is_spoilt, own))}
    disturbed = {number for number, own in steps.items() if any(step.holds_other_work for step in own)} | spoilt
    apart = [number for number in steps if number not in disturbed and number - 1 not in disturbed]
    behind = [number for number in steps if number not in disturbed]
    beside = [number for number, own in steps.items() if number not in spoilt and not any(step.save_s for step in own)]
    few = len(beside) < _FEW and bool(apart or not beside)
    enough = max(_FEW, _SOME * len(beside))
    if len(apart) >= enough or few or len(apart) > len(beside) // 2:
        return apart, False
    return (behind if len(behind) >= enough else beside), True


def _with_exchange(attempt: Attempt, numbers: list[int]) -> KeptSteps:
    """Return the steps with their exchange divided, or with the reason why it is not."""
    if len(attempt.ranks) < 2:  # noqa: PLR2004 - it waits for no other
        alone = attempt.mismatch(numbers) if attempt.world > 1 else None
        return KeptSteps(attempt, numbers, None, alone)
    exchange = split_exchange(attempt, numbers)
    if isinstance(exchange, str):
        return KeptSteps(attempt, numbers, None, exchange)
    if len(exchange.numbers) < min(FEWEST, len(numbers)):
        return KeptSteps(attempt, numbers, None, "too few steps have all their collectives on record")
    exchange_s = float((exchange.waiting_s + exchange.exposed_s).mean())
    if exchange.clock.uncertainty_s > _MOST_UNCERTAIN * exchange_s:
        known, whole = format_seconds(exchange.clock.uncertainty_s), format_seconds(exchange_s)
        return KeptSteps(
            attempt, numbers, None, f"clocks of hosts are known to {known}, and the exchange takes {whole}"
        )
    return KeptSteps(attempt, exchange.numbers, exchange, None)


def selection_notes(kept: KeptSteps) -> Iterator[str]:
    """Yield what limits the steps that are kept, as that an evaluation lies beside them."""
    if kept.exchange is not None and (uneven := kept.attempt.uneven()) is not None:
        yield f"{uneven}; the parts are of steps that all have"
    if kept.exchange is not None and kept.exchange.is_compiled:
        yield "waiting is that for ranks that begin compiled steps late; what one computes longer in them does not show"
    if kept.near_evaluation:
        yield "every step is next to an evaluation: passes without gradient are left out of its time, later code is not"


def _is_spoilt(step: StepLine) -> bool:
    """Return whether a step is unlike others: compiled, ablated, incomplete, or with an evaluation that is its own."""
    lacking = step.ablation
    compiled = step.regions.get("compile", 0) > 0
    return compiled or not _SPOILING.isdisjoint(step.flags) or (lacking is not None and lacking[1] != "whole")


def _of_main_kind(steps: Mapping[int, Sequence[StepLine]], numbers: Sequence[int]) -> list[int]:
    """Return the steps of the kind that takes most time; all where kinds take turns.

    Kinds are told apart by the number of micro-steps, and by whether captured graphs are replayed.

    So do those of a network whose every fifth update is followed by that of another. Fewer than four steps do not make
    a kind: a first one can hold what came before the update was known.
    """
    kinds: dict[tuple[int, bool], list[int]] = {}
    for number in numbers:
        if len(own := {_kind(step) for step in steps[number]}) == 1:
            kinds.setdefault(own.pop(), []).append(number)
        else:
            return list(numbers)
    if len(kinds) > _MOST_KINDS:
        return list(numbers)
    several = {kind: own for kind, own in kinds.items() if len(own) >= FEWEST}
    if not several:
        return max(kinds.values(), key=len, default=[])
    lasted = {kind: sum(steps[number][0].active_s for number in own) for kind, own in several.items()}
    main = max(reversed(several), key=lasted.__getitem__)
    changes = sum(_kind(steps[one][0]) != _kind(steps[other][0]) for one, other in pairwise(numbers))
    take_turns = changes > _MOST_CHANGES * len(kinds) and lasted[main] < _MAIN * sum(lasted.values())
    return list(numbers) if take_turns else several[main]


def _kind(step: StepLine) -> tuple[int, bool]:
    return step.micro_steps, "replay" in step.regions


def _first_steady(steps: Mapping[int, Sequence[StepLine]], numbers: Sequence[int]) -> int:
    if len(numbers) < _FEW:
        return int(len(numbers) > 2)  # noqa: PLR2004 - a mean of at least two
    series = np.array([np.mean([step.active_s for step in steps[number]]) for number in numbers])
    # The rule below does not take one step that loads kernels for a trend; it may outweigh all others.
    starting = int(np.argmax(series <= _STARTING * np.median(series)))
    rest = series[starting:]
    if len(rest) < _FEW or rest.sum() <= 0.0:
        return starting
    dropped = reduce_times([rest])[0].dropped
    return starting + (dropped if dropped <= max(_AT_ONCE, _LITTLE * len(rest)) or is_transient(rest, dropped) else 0)
