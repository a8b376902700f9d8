"""The POP efficiencies of a broken-down step: which factor keeps workers from computing all the time, and from scaling.

The factors are those of the POP centre of excellence (Wagner, Mohr, Giménez, Labarta, Tools for HPC 2017, 2019):
parallel = load balance x communication, communication = serialisation x transfer, global = parallel x computation.
Here, of a step with the seconds ``comm_exposed`` and ``sync_wait``:

- transfer = 1 - exposed / step: an ideal network would leave that much of it.
- parallel = 1 - (exposed + waiting) / step: the mean worker computes so much of it.
- load balance = 1 / (1 + persistent imbalance): the mean computation over that of the worker that is slow on average.
- serialisation = parallel / (load balance x transfer): what is left, such as pauses of one worker that all wait for.
- computation, between two scales: seconds of useful work for a sample at the reference over those here.

Useful is whatever is not communication or waiting for workers, also waiting for input; the share of a step without
that is beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp

import numpy as np

from steptime.analysis.ablation.form import Phase, PopEfficiencies
from steptime.analysis.ablation.stages import Array, over_blocks
from steptime.results.json_form import Interval

ASYNCHRONOUS = (
    "POP efficiencies describe steps that all workers end together; workers of this strategy do not wait for each other"
)
_UNKNOWN = "the breakdown cannot tell exposed communication from waiting"
_NOTHING_USEFUL = "communication and waiting take as long as the step"
_EXACT: Interval = Interval(1.0, 1.0, 1.0)


def why_no_efficiencies(
    phases: Sequence[Mapping[str, Array | None]], steps: Sequence[Array], *, synchronous: bool
) -> str | None:
    """Return why a step has no POP efficiencies; None if it has.

    Args:
        phases: of each launch, the seconds of every phase in every block.
        steps: of each launch, the seconds of the step in every block.
        synchronous: whether workers wait for each other in every step.
    """
    if not synchronous:
        return ASYNCHRONOUS
    lost = [_lost(each) for each in phases]
    if any(each is None for each in lost):
        return _UNKNOWN
    useful = [step - each for step, each in zip(steps, lost, strict=True) if each is not None]
    useful += [step - _known(each["comm_exposed"]) for step, each in zip(steps, phases, strict=True)]
    return None if all(np.all(each > 0.0) for each in useful) else _NOTHING_USEFUL


def pop_efficiencies(
    phases: Sequence[Mapping[str, Array | None]],
    steps: Sequence[Array],
    persistent: Sequence[Array] | None,
    input_wait: Phase | None,
) -> PopEfficiencies:
    """Return the efficiencies of a step that has some (``why_no_efficiencies``).

    Values follow from the means over launches, so that their products hold exactly. Intervals are of the logarithms
    over blocks and launches, as those of all phases.

    Args:
        phases: of each launch, the seconds of every phase in every block.
        steps: of each launch, the seconds of the step in every block.
        persistent: of each launch, the persistent imbalance of every block; None with one worker.
        input_wait: as the breakdown has it; None if it is unknown.
    """

    def share(part: Callable[[Mapping[str, Array | None], Array], Array]) -> Interval:
        parts = [part(each, step) for each, step in zip(phases, steps, strict=True)]
        shares = [each / step for each, step in zip(parts, steps, strict=True)]
        return _interval_of_launches(_mean(parts) / _mean(steps), shares)

    parallel = share(lambda each, step: step - _known(_lost(each)))
    transfer = share(lambda each, step: step - _known(each["comm_exposed"]))
    balance = _EXACT
    even = [np.ones_like(step) for step in steps]
    if persistent is not None:
        even = [1.0 / (1.0 + each) for each in persistent]
        balance = _interval_of_launches(1.0 / (1.0 + _mean(persistent)), even)
    useful = [step - _known(_lost(each)) for each, step in zip(phases, steps, strict=True)]
    moved = [step - _known(each["comm_exposed"]) for each, step in zip(phases, steps, strict=True)]
    communication = [each / step / balanced for each, step, balanced in zip(useful, steps, even, strict=True)]
    serialisation = [each / other / balanced for each, other, balanced in zip(useful, moved, even, strict=True)]
    return PopEfficiencies(
        parallel=parallel,
        load_balance=balance,
        communication=_interval_of_launches(parallel.value / balance.value, communication),
        serialisation=_interval_of_launches(parallel.value / balance.value / transfer.value, serialisation),
        transfer=transfer,
        without_input_wait=_without(input_wait, _mean(steps)),
        useful_s=_interval_of_launches(_mean(useful), useful),
    )


def _lost(phases: Mapping[str, Array | None]) -> Array | None:
    exposed, waited = phases.get("comm_exposed"), phases.get("sync_wait")
    return None if exposed is None or waited is None else exposed + waited


def _known(values: Array | None) -> Array:
    assert values is not None  # noqa: S101 - why_no_efficiencies was asked before; for the type checker
    return values


def _mean(launches: Sequence[Array]) -> float:
    return float(np.mean([each.mean() for each in launches]))


def _without(part: Phase | None, step_s: float) -> Interval | None:
    """Return what a phase leaves of the mean step, as a share."""
    if part is None:
        return None
    low, high = (None if bound is None else 1.0 - bound / step_s for bound in (part.high_s, part.low_s))
    return Interval(1.0 - part.value_s / step_s, low, high)


def _interval_of_launches(value: float, launches: Sequence[Array]) -> Interval:
    """Return a value with the interval that the logarithms of launches' blocks have, moved to it."""
    found = over_blocks([np.log(each) for each in launches])
    if found.low is None or found.high is None:
        return Interval(value, None, None)
    return Interval(value, value * exp(found.low - found.value), value * exp(found.high - found.value))
