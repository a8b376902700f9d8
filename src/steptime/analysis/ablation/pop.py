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

Who computes longer than the others, and whether it is always the same one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from steptime.analysis.ablation.form import Phase, PopEfficiencies
from steptime.analysis.ablation.stages import Array, StageTimes, over_blocks
from steptime.results.json_form import Interval
from steptime.statistics.interval import LEVEL, t_quantile
from steptime.statistics.simultaneous import sidak_level

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
        return _around(_mean(parts) / _mean(steps), shares)

    parallel = share(lambda each, step: step - _known(_lost(each)))
    transfer = share(lambda each, step: step - _known(each["comm_exposed"]))
    balance = _EXACT
    even = [np.ones_like(step) for step in steps]
    if persistent is not None:
        even = [1.0 / (1.0 + each) for each in persistent]
        balance = _around(1.0 / (1.0 + _mean(persistent)), even)
    useful = [step - _known(_lost(each)) for each, step in zip(phases, steps, strict=True)]
    moved = [step - _known(each["comm_exposed"]) for each, step in zip(phases, steps, strict=True)]
    communication = [each / step / balanced for each, step, balanced in zip(useful, steps, even, strict=True)]
    serialisation = [each / other / balanced for each, other, balanced in zip(useful, moved, even, strict=True)]
    return PopEfficiencies(
        parallel=parallel,
        load_balance=balance,
        communication=_around(parallel.value / balance.value, communication),
        serialisation=_around(parallel.value / balance.value / transfer.value, serialisation),
        transfer=transfer,
        without_input_wait=_without(input_wait, _mean(steps)),
        useful_s=_around(_mean(useful), useful),
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


def _around(value: float, launches: Sequence[Array]) -> Interval:
    """Return a value with the interval that the logarithms of launches' blocks have, moved to it."""
    found = over_blocks([np.log(each) for each in launches])
    if found.low is None or found.high is None:
        return Interval(value, None, None)
    return Interval(value, value * exp(found.low - found.value), value * exp(found.high - found.value))


_BLAME = 0.05
"""A worker is blamed when it is shown to be slower than the others, and by more than this share."""


@dataclass(frozen=True)
class ComputeImbalance:
    """Load imbalance of computation without any waiting; shares of the mean computation."""

    factor: Interval
    """Mean over steps of the longest computation divided by the mean one; 1 is balanced."""
    persistent: Interval
    """What the slowest worker computes longer on average over all steps."""
    transient: Interval
    """The rest of factor - 1: whoever happens to be slow in a step."""
    blamed_worker: int | None
    """The rank of the one worker that is slow on average; None if there is none or more than one."""
    compute_s: list[Interval]
    """For each worker."""
    persistent_blocks: list[Array]
    """Of each launch, the persistent part in every block."""


def imbalance(all_stage_times: Sequence[StageTimes]) -> ComputeImbalance | None:
    """Return the imbalance over launches; None for a single worker or without a stage that shows it.

    Two-way decomposition of each launch's matrix (worker x step): C[w, k] = mean + worker[w] + step[k] + rest[w, k].
    The persistent part is the largest worker effect; the transient part is what the rest adds to the mean over steps
    of the maximum over workers. The factor is that of Kavarakuntla et al. (2021): maximum / mean.

    Args:
        all_stage_times: the launches.
    """
    launches = [each.stages[each.alone] for each in all_stage_times if each.alone]
    if not launches or launches[0][0].shape[0] == 1:
        return None
    matrices = [np.concatenate(blocks, axis=1) for blocks in launches]
    slowest = [int(each.mean(axis=1).argmax()) for each in matrices]
    factor = [np.array([(block.max(axis=0) / block.mean(axis=0)).mean() for block in blocks]) for blocks in launches]
    persistent = [
        np.array([block[rank].mean() / block.mean() - 1.0 for block in blocks])
        for blocks, rank in zip(launches, slowest, strict=True)
    ]
    transient = [whole - 1.0 - part for whole, part in zip(factor, persistent, strict=True)]
    return ComputeImbalance(
        factor=over_blocks(factor),
        persistent=over_blocks(persistent),
        transient=over_blocks(transient),
        blamed_worker=blamed_worker(matrices),
        compute_s=[
            over_blocks([np.array([block[rank].mean() for block in blocks]) for blocks in launches])
            for rank in range(len(matrices[0]))
        ],
        persistent_blocks=persistent,
    )


def blamed_worker(matrices: Sequence[Array]) -> int | None:
    """Return the worker that is shown to compute longer than the others; None if that is none or several.

    A worker's typical computation in a launch is its median over steps: a rare pause makes no worker slow.
    Its logarithm is launch + worker + rest, and the rest's variance, over all workers and launches, bounds what
    launches make of equal workers: memory layout or placement slow one down by chance. The intervals of all workers
    against the mean of the others hold together (Šidák), and a single launch blames no worker.
    """
    launches, workers = len(matrices), len(matrices[0])
    if launches == 1:
        return None
    typical = np.log([np.median(each, axis=1) for each in matrices])
    effects = typical - typical.mean(axis=1, keepdims=True)
    freedom = (launches - 1) * (workers - 1)
    variance = float(((effects - effects.mean(axis=0)) ** 2).sum()) / freedom
    # An effect is (1 - 1 / workers) of the difference from the mean of the others.
    against_others = effects.mean(axis=0) * workers / (workers - 1)
    error = np.sqrt(variance / launches * workers / (workers - 1))
    claims = workers if workers > 2 else 1  # noqa: PLR2004 - of two, one is slow by as much as the other is quick
    half_width = float(t_quantile(freedom, sidak_level(LEVEL, claims))) * error
    slow = np.flatnonzero((against_others > half_width) & (against_others > np.log1p(_BLAME)))
    return int(slow[0]) if len(slow) == 1 else None
