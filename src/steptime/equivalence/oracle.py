"""The oracle: what the reference computes for a probe, and how much of it is rounding or a matter of order."""

import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.layers import Workload
from steptime.equivalence.distance import Round, Sketch, norm, read_sketches, samples_into, with_usual_lengths
from steptime.equivalence.probes import Probe, reference_flops
from steptime.execution.executor import Executor
from steptime.study.study import neutral_fields
from steptime.study.trial import Trial

_LARGEST_ROUNDING = {"fp32": 5e-3, "tf32": 0.2, "fp16": 0.2, "bf16": 0.2}
"""Of an update. Beyond it, rounding begins to look like a fault."""
_LARGEST_SPREAD = 5e-3
"""Likewise, of what the order of asynchronous updates changes."""
_LARGEST_GROWTH = 2.0
"""Of the loss over its first value. Beyond it training diverges, where activations are in the thousands, a rounded one
near zero decides over whole rows, and some frameworks cap the loss."""
_LEAST_ROUNDS = 2
"""The gradient, and one round of several steps; with fewer, a smaller learning rate is tried."""
_TENTHS = 4
"""How often the learning rate may be divided by ten."""
_SHARE_OF_SPREAD = 1 / 8
"""Of the distance between the orders, that counts as a unit of rounding, so that twice the distance is allowed."""
_SHARE_OF_LOSS = 1 / 32
"""Likewise, of what all updates change of the loss, so that half of it is allowed."""
_LARGEST_CHANGE = 0.05
"""Of the loss, in a probe whose gradients must hardly change."""
_RESIDUE = 0.8
"""Gradients that count as a unit, of which 16 are allowed: residues of CNTK's smallest arrays were 7 gradients long."""
_NUDGES = 16
"""Runs of the reference beside the right one, for a round whose gradients are computed at weights that are put off. Of
two in a row that go opposite ways, one changes the sign of what lies at zero to the last digit."""
_NUDGES_OF_SMALL_RUNS = 64
"""Where several activations lie at zero, it takes many runs until one has their combination."""
_NUDGES_OF_OWN = 8
"""Of a user's module: each begins a process that imports a library."""
_SMALL_RUN_FLOPS = 5e10
"""The most that a small run costs."""
_SHARE_LEFT = 0.5
"""Of the first gradient, where gradients are clipped."""
_BITS = {"fp32": (64, 32), "tf32": (64, 16), "fp16": (64, 16), "bf16": (16, 64)}
"""By precision, the widths of the reference whose numbers are right, and of that whose distance from it is rounding. It
has no format of 11 bits, and distances allow for that."""


@dataclass(frozen=True)
class Truth:
    """What is right of a probe."""

    learning_rate: float
    ranks: tuple[tuple[Round, ...], ...]
    """The rounds of each worker."""
    parameters: int
    """That are trained."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a user's module, as a process of its framework read them."""
    nudges: tuple[str, ...] = ()
    """Where the weights were put off by some millionths, as the reference's option ``nudges`` has it."""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Of the first worker."""
        return self.ranks[0]

    def widened(self, others: Sequence["Truth"]) -> "Truth":
        """Return this truth, where as far away from it as ``others`` are, which are as right, is right too."""
        rounds = tuple(each.beside([other.rounds[place] for other in others]) for place, each in enumerate(self.rounds))
        return replace(self, ranks=(rounds,) * len(self.ranks))


@dataclass(frozen=True)
class _Run:
    """A run of the reference."""

    losses: list[float]
    sketches: list[Sketch]
    """Before the first round, and behind each."""
    parameters: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a user's module, what the process read from it."""


class _ReferenceFailureError(Exception):
    """The reference failed; the message has the cause."""


@dataclass(frozen=True)
class Oracle:
    """Asks the reference, in a scratch folder."""

    executor: Executor
    scratch: Path
    _kept: dict[str, _Run] = field(default_factory=dict, init=False, repr=False)
    """Runs beside the right one, by what was asked: several frameworks want the same ones."""

    def clipping(self, probe: Probe, workload: Workload) -> Probe:
        """Return a probe whose ``clip_norm``, if it has one, shortens gradients: to half of the first one at most."""
        optimizer = probe.trial.optimizer
        if optimizer.clip_norm is None:
            return probe
        plain = Optimizer(learning_rate=optimizer.learning_rate, momentum=0.0)
        one_step = replace(probe, trial=probe.trial.model_copy(update={"optimizer": plain}), rates=(), settings={})
        try:
            run = self._ask(one_step, workload, plain.learning_rate, (1,), bits=64)
        except _ReferenceFailureError:
            return probe  # whose truth will say why
        first, then = run.sketches
        length = math.hypot(*(norm(then[name] - first[name]) for name in then)) / plain.learning_rate
        if not 0.0 < length < math.inf:
            return probe
        shorter = optimizer.model_copy(update={"clip_norm": min(optimizer.clip_norm, _SHARE_LEFT * length)})
        return replace(probe, trial=probe.trial.model_copy(update={"optimizer": shorter}))

    def truth(self, probe: Probe, workload: Workload) -> Truth | str:
        """Return what is right of ``probe``, or why the reference could not say.

        Where training diverges, or rounding or order decide too early, the learning rate is a tenth, down to a
        ten-thousandth of the trial's. Rounds in which rounding decides even then are left out.
        """
        answer = {
            "mean": self._mean,
            "any_order": self._any_order,
            "error_feedback": self._error_feedback,
            "blocks": self._mean,
        }[probe.answer]
        rate, least = probe.trial.optimizer.learning_rate, probe.trial.optimizer.learning_rate / 10**_TENTHS
        try:
            while True:
                found = answer(probe, workload, rate, last=rate <= least)
                if isinstance(found, Truth):
                    return found
                rate = max(found, least)
        except _ReferenceFailureError as failure:
            return f"the reference failed: {failure}"

    def beside(self, probe: Probe, workload: Workload, truth: Truth, place: int) -> Iterator[Truth]:
        """Yield what is as right as ``truth``, but for gradients of round ``place`` at weights some millionths away.

        Where an activation lies at zero to the last digit, both slopes of a ReLU are right, and likewise both places
        of a maximum that two activations share. Nothing where workers update by themselves.
        """
        if probe.answer != "mean":
            return
        bits, _ = _BITS[probe.trial.precision]
        first, count = sum(probe.rounds[:place]), _nudges(probe, workload)
        for number in range(count):
            seed = number + count * len(truth.nudges)  # another one than those before
            nudges = (*truth.nudges, f"{seed}@{first}-{first + probe.rounds[place]}")
            try:
                run = self._ask(probe, workload, truth.learning_rate, probe.rounds, bits=bits, nudges=" ".join(nudges))
            except _ReferenceFailureError:
                return
            rounds = tuple(
                replace(each, start=run.sketches[at], end=run.sketches[at + 1], loss=run.losses[at])
                for at, each in enumerate(truth.rounds)
            )
            yield replace(truth, ranks=(rounds,) * len(truth.ranks), nudges=nudges)

    def _mean(self, probe: Probe, workload: Workload, rate: float, *, last: bool) -> Truth | float:
        """Every worker's share with its own batch statistics, in one process, and the mean of the gradients.

        That is what a synchronous strategy must do, whatever layers the workload has. Returns the learning rate to try
        next where this one does not do.
        """
        right, other = _BITS[probe.trial.precision]
        exact = self._ask(probe, workload, rate, probe.rounds, bits=right)
        if _diverges(exact.losses) and not last:
            return rate / 10
        rounded = self._ask(probe, workload, rate, probe.rounds, bits=other)
        rounds = with_usual_lengths(
            [
                _round(probe, number, exact, rounded.sketches, rounded.losses[number])
                for number in range(len(probe.rounds))
            ],
            samples_into(workload),
        )
        limit = _LARGEST_ROUNDING[probe.trial.precision]
        clear = next((number for number, each in enumerate(rounds) if each.rounding > limit), len(rounds))
        if clear < min(_LEAST_ROUNDS, len(rounds)) and not last:
            return rate / 10
        ranks = (tuple(rounds[: max(clear, 1)]),) * probe.trial.workers
        return Truth(rate, ranks, exact.parameters, exact.facts)

    def _any_order(self, probe: Probe, workload: Workload, rate: float, *, last: bool) -> Truth | float:
        """The weights when each gradient has updated once: of workers that saw all updates before, and that saw none.

        All orders and all staleness lie between the two, whose distance is a part of what is allowed.
        """
        workers = probe.trial.workers
        steps = sum(probe.rounds) + probe.turns
        # All pushes but those of the last turn, and then one by one.
        rounds = ((steps - 1) * workers, *(1,) * workers)
        bits, other = _BITS[probe.trial.precision]
        seen = self._ask(probe, workload, rate, rounds, updates="in_turn", bits=bits)
        unseen = self._ask(probe, workload, rate, rounds, updates="frozen", bits=bits)
        first, end = seen.sketches[0], seen.sketches[-1]
        apart = math.hypot(*(norm(unseen.sketches[-1][name] - end[name]) for name in end))
        spread = apart / math.hypot(*(norm(end[name] - first[name]) for name in end))
        if not last and _diverges(seen.losses):
            return rate / 10
        if not last and spread > _LARGEST_SPREAD:
            return rate * _LARGEST_SPREAD / spread / 2  # it is proportional to the rate, or nearly
        rounded = self._ask(probe, workload, rate, rounds, updates="in_turn", bits=other)
        ranks = []
        for number in range(1, workers + 1):
            right, others, stored = (run.sketches[number + 1] for run in (seen, unseen, rounded))
            units = {
                name: norm(stored[name] - right[name]) + norm(others[name] - right[name]) * _SHARE_OF_SPREAD
                for name in right
            }
            # A worker that never pulled has the loss at the first weights; half of the way to it is allowed.
            unit = abs(seen.losses[number] - unseen.losses[number]) * _SHARE_OF_LOSS
            ranks.append((Round(steps, first, right, units, seen.losses[number], unit),))
        return Truth(rate, tuple(ranks), seen.parameters, seen.facts)

    def _error_feedback(self, probe: Probe, workload: Workload, rate: float, *, last: bool) -> Truth | float:
        """The mean of all gradients, but for a residue that does not grow with the steps.

        The sum of what was sent is the sum of the gradients less the residue, which after n steps is at most some
        gradients long. The learning rate is so small that gradients hardly change.
        """
        steps = sum(probe.rounds)
        exact = self._ask(probe, workload, rate, (1, steps - 1), bits=_BITS[probe.trial.precision][0])
        if not last and not abs(exact.losses[-1] - exact.losses[0]) <= _LARGEST_CHANGE * abs(exact.losses[0]):
            return rate / 10
        start, end = exact.sketches[0], exact.sketches[-1]
        units = {name: norm(end[name] - start[name]) * _RESIDUE / steps for name in end}
        right = Round(steps, start, end, units, None, 0.0)
        return Truth(rate, ((right,),) * probe.trial.workers, exact.parameters)

    def ask_module(
        self, probe: Probe, workload: Workload, **settings: int | str | bool
    ) -> tuple[Sketch, Sketch, Mapping[str, Any]] | str:
        """Return weights before and behind one step of a user's module in one process, and what was read from it.

        Args:
            probe: of its check.
            workload: the module's.
            settings: of ``own_reference`` in its job, as worker/own_reference.py has them.

        Returns why, where the process failed.
        """
        try:
            run = self._ask(probe, workload, probe.trial.optimizer.learning_rate, (1,), **settings)
        except _ReferenceFailureError as failure:
            return str(failure)
        return run.sketches[0], run.sketches[1], run.facts

    def _ask(
        self, probe: Probe, workload: Workload, rate: float, rounds: tuple[int, ...], **options: int | str | bool
    ) -> _Run:
        """Run the reference as one process that does the work of all workers.

        Of a user's module that is the module itself in its framework's environment, in plain steps of its library.
        """
        trial = probe.trial.with_learning_rate(rate)
        if workload.own is not None:
            return self._ask_own(probe, trial, workload, rounds, options)
        options = {"updates": "together", "shards": trial.workers, **options}
        reference = reference_of(trial).model_copy(update={"options": options})
        job = probe.reference_job(reference, workload, (0, *rounds))  # behind no step, the first weights
        job["options"].update(probe.settings)
        return self._run(reference, job, keep="nudges" in options)

    def _ask_own(
        self, probe: Probe, trial: Trial, workload: Workload, rounds: tuple[int, ...], settings: Mapping[str, Any]
    ) -> _Run:
        reference = reference_of(trial, same_environment=True)
        job = probe.reference_job(reference, workload, (0, *rounds))
        job["own_reference"] = {"updates": "together", "shards": trial.workers, **settings}
        return self._run(reference, job, keep=True)

    def _run(self, reference: Trial, job: dict[str, Any], *, keep: bool) -> _Run:
        """Launch the reference, unless the same was asked for and kept."""
        folder = self.scratch / f"truth-{secrets.token_hex(8)}"  # truths are asked for side by side
        asked = json.dumps([job, reference.environment_name], sort_keys=True) if keep else ""
        if asked in self._kept:
            return self._kept[asked]
        ran = self.executor.launch(reference, job, folder, last_record="check", pinned=False)
        if ran.reason:
            raise _ReferenceFailureError(ran.reason)
        check, session = ran.collected.worker(0)["check"], ran.collected.worker(0)["session"]
        losses: list[float] = check["losses"][1:]
        found = read_sketches(folder, 0)
        self.executor.remove(folder)
        sketches = [found[number] for number in sorted(found)]
        run = _Run(losses, sketches, check["parameters"], session["facts"].get("own", {}))
        if asked:
            self._kept[asked] = run
        return run


def reference_of(trial: Trial, *, same_environment: bool = False) -> Trial:
    """Return the configuration of one process that computes what is right of ``trial``.

    Args:
        trial: the configuration that is checked.
        same_environment: whether it runs in the environment of ``trial``, as a user's module must.
    """
    here: dict[str, Any] = {"launcher": "local", "cluster": None, "hosts": 1}
    contained = {} if same_environment else {"container": ()}
    axes = neutral_fields(trial, same_environment=same_environment)
    return trial.model_copy(update={**axes, **here, **contained})


def _round(probe: Probe, number: int, exact: _Run, rounded: list[Sketch], loss: float) -> Round:
    start, end = exact.sketches[number], exact.sketches[number + 1]
    units = {
        name: norm((rounded[number + 1][name] - rounded[number][name]) - (end[name] - start[name])) for name in end
    }
    right = exact.losses[number]
    return Round(probe.rounds[number], start, end, units, right, abs(loss - right))


def _nudges(probe: Probe, workload: Workload) -> int:
    """Return how many runs beside the right one a probe may have."""
    if workload.own is not None:
        return _NUDGES_OF_OWN
    of_run = reference_flops(probe.trial, workload) * sum(probe.rounds)
    return _NUDGES_OF_SMALL_RUNS if of_run <= _SMALL_RUN_FLOPS else _NUDGES


def _diverges(losses: list[float]) -> bool:
    # Each by itself: Python's maximum passes over what is not a number.
    return not all(loss <= _LARGEST_GROWTH * losses[0] for loss in losses)
