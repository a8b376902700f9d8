"""What must hold of a user's own module before its workers can be compared with one process, and what is said of it.

No numpy reference knows it. The right answer is the module itself in one process, in double precision where it
can, which trains each worker's batches by themselves and takes the mean of the gradients. Beside it the batches are
joined to one: where that gives other gradients, as with batch normalisation, it is explained.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steptime.catalog.workloads.layers import Workload
from steptime.catalog.workloads.own_module import MODULE_KINDS, ModuleKind
from steptime.equivalence.distance import Sketch, norm
from steptime.equivalence.oracle import Oracle
from steptime.equivalence.probes import Probe, well_conditioned
from steptime.study.trial import Trial

_SAME = 1e-7
"""Of an update, in double precision: what the order of sums changes is less."""
_SAME_SINGLE = 1e-3
"""Likewise, of a module that computes in single precision whatever it is asked."""
_APART = 10.0
"""Times the above, that a joined batch must differ."""
_DOUBLE = 64
_STEP_FLOPS = 3e11
"""That the steps of a run may cost: some tens of seconds on one core."""
_NAMED = 3


@dataclass(frozen=True)
class Inspection:
    """What one process found of a user's module."""

    steps: int
    """Of a probe, that can be afforded."""
    explanation: str | None
    """What makes several workers train otherwise than one with their joined batches; None if nothing does."""


def inspect(oracle: Oracle, trial: Trial, workload: Workload, steps: int) -> Inspection | str:
    """Return what was found of the module of ``trial``, or why it cannot be checked.

    Args:
        oracle: asks the processes.
        trial: of the check.
        workload: the module's.
        steps: of a probe, at most.
    """
    probe = Probe("one process", well_conditioned(trial), (1,))

    def ask(**settings: int | str | bool) -> tuple[Sketch, Sketch, Mapping[str, Any]] | str:
        return oracle.ask_module(probe, workload, bits=_DOUBLE, **settings)

    first = ask()
    if isinstance(first, str):
        return f"one process cannot train it: {first}"
    facts, kind = first[2], MODULE_KINDS[oracle.executor.manifests[trial.framework].own_modules or "torch"]
    same = _SAME if facts["bits"] == _DOUBLE else _SAME_SINGLE
    if unequal := _unrepeatable(first, ask, same, kind):
        return unequal
    affordable = _affordable(steps, facts["flop_per_sample"], trial)
    if trial.workers == 1:
        return Inspection(affordable, explanation=None)
    together = ask(joined=True)
    if isinstance(together, str):
        return f"one process cannot train the joined batches of its {trial.workers} workers: {together}"
    name, distance = _furthest(first, together)
    if distance <= _APART * same:
        return Inspection(affordable, explanation=None)
    return Inspection(affordable, explanation=_explained(facts, trial, kind, name, distance))


def _unrepeatable(
    first: tuple[Sketch, Sketch, Mapping[str, Any]],
    ask: Callable[..., tuple[Sketch, Sketch, Mapping[str, Any]] | str],
    same: float,
    kind: ModuleKind,
) -> str | None:
    """Return what two runs of one process from the same weights on the same batches disagree in, or None."""
    other = ask(draws=1)
    if isinstance(other, str):
        return f"one process cannot train it a second time: {other}"
    if unseeded := _unseeded(first[2], other[2]):
        return unseeded
    name, distance = _furthest(first, other)
    if distance <= same:
        return None
    repeated = ask(draws=0, again=True)
    if isinstance(repeated, str):
        return f"one process cannot train it a second time: {repeated}"
    if _furthest(first, repeated)[1] <= same:
        return (
            "the module draws random numbers in its forward pass, other ones on each worker, so that workers cannot be "
            f"compared: two runs of one process give {name} updates {_share(distance)} apart, though dropout is off; "
            "let what draws do nothing in a module that is to be measured"
        )
    named = f" ({kind.order} names them)" if kind.order else ""
    return (
        "the module is not deterministic: two runs of one process from the same weights on the same batches and random "
        f"numbers give {name} updates {_share(distance)} apart; it keeps something between runs, or uses operations "
        f"without a fixed order{named}"
    )


def _unseeded(first: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return what of two processes' facts differs though their random numbers are seeded alike, or None."""
    if other["first_batch"] != first["first_batch"]:
        return (
            "its loader gives other batches each time it is called with the same arguments, though the random numbers "
            "of Python, numpy and the library are seeded; draw from these, or from a seed made of rank"
        )
    if other["first_weights"] != first["first_weights"]:
        return (
            "its function gives other weights each time it builds the module, though the random numbers of Python, "
            "numpy and the library are seeded; take the weights from these"
        )
    return None


def _explained(facts: Mapping[str, Any], trial: Trial, kind: ModuleKind, name: str, distance: float) -> str:
    workers, batch = trial.workers, trial.batch_per_worker
    apart = f"in the check {name} differs most, by {_share(distance)} of its update"
    layers: list[str] = facts["batch_norm"]
    if layers:
        more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
        return (
            f"each worker normalises over its own batch ({', '.join(layers[:_NAMED])}{more}): {workers} workers with "
            f"batches of {batch} train otherwise than one with a batch of {workers * batch}; {apart}. They were "
            f"compared with one process that normalises in the same shares; {kind.joining}"
        )
    return (
        "samples of a batch act on each other, or the loss is not a mean over samples: the mean of the workers' "
        f"gradients is not the gradient of their joined batch; {apart}. Workers were compared with that mean"
    )


def _affordable(steps: int, flop_per_sample: int | None, trial: Trial) -> int:
    if flop_per_sample is None:
        return steps
    return max(min(steps, 3), min(steps, int(_STEP_FLOPS / max(flop_per_sample * trial.global_batch, 1))))


def _furthest(
    one: tuple[Sketch, Sketch, Mapping[str, Any]], other: tuple[Sketch, Sketch, Mapping[str, Any]]
) -> tuple[str, float]:
    """Return the parameter whose updates are furthest apart, and the distance as a share of the update's length.

    An update that is nothing but rounding, as that of a bias ahead of a normalisation, counts by its share of all.
    """
    updates = {name: (one[1][name] - one[0][name], other[1][name] - other[0][name]) for name in one[1]}
    largest = max((norm(update) for update, _ in updates.values()), default=0.0)
    found = {
        name: norm(update - beside) / max(norm(update), 1e-6 * largest, 1e-300)
        for name, (update, beside) in updates.items()
    }
    name = max(found, key=lambda each: found[each] if not math.isnan(found[each]) else math.inf)
    return name, found[name]


def _share(distance: float) -> str:
    return f"{100 * distance:.3g} %"
