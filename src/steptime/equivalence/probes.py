"""The probes of a check: small launches, each of which has one right answer that the reference computes.

Which probes a trial needs follows from its strategy's ``answer`` and its number of workers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from steptime.catalog.choices import OWN, SYNTHETIC, strategy_named
from steptime.catalog.cluster import cluster_for
from steptime.catalog.manifest import Manifest
from steptime.catalog.optimizer import SETTINGS, Optimizer
from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.layers import Workload
from steptime.execution.jobs import check_job
from steptime.study.training import Training
from steptime.study.trial import Trial

_BATCH = 8
"""Samples per worker: enough for batch statistics, small enough for the reference. With two, as a trial may have, batch
normalisation is all but a sign where images have become one pixel, and rounding decides over gradients."""
_WORKERS = 8
"""At most; below, as many as are timed, since an exchange may leave out whoever is behind the third."""
_MOMENTUM = 0.9
"""Where a trial has none, so that a missing one would show."""
_WEIGHT_DECAY = 0.1
"""Likewise: it changes updates by about as much as gradients do."""
_DECAY_OF_A_STEP = 0.05
"""The share of itself that a matrix loses in a step where biases do not decay: it shows on biases, which are short."""
_EPSILON = 1e-2
"""The least epsilon of a probe: gradients of a check are of this size, so that their length still counts."""
_RATES = (1.0, 0.5, 0.25)
"""Factors of the learning rate of the rounds of a training's probe, again and again."""
_ROUNDS = (2, 3, 1)
"""Steps of the rounds behind the first, again and again: engines run ahead within a round, and not beyond."""
_LEAST_STEPS = 3
_REFERENCE_FLOPS = 1e11
"""That a run of the reference may take: one to five seconds on one core. Larger workloads take fewer steps."""
_FLOPS_PER_WEIGHT = 160
"""That it makes in the time in which it updates a weight: of AlexNet, with 60 million, half a second."""
_FREE_STEPS = 4
_TURNS = 2
"""Of workers that do not wait for each other: steps that each takes at its own pace, and then in turn."""
_FEEDBACK_STEPS = 41
"""Steps after which the residue of quantised gradients is small beside their sum."""
_FEEDBACK_BATCHES = 1
"""The same in every step, so that gradients add up and do not cancel."""
_BLOCK_STEPS = 3
_BLOCKS = 3
"""Blocks of a probe, and steps of each."""


@dataclass(frozen=True)
class Probe:
    """One launch of a check, and how its right answer is computed."""

    name: str
    trial: Trial
    rounds: tuple[int, ...]
    turns: int = 0
    answer: str = "mean"
    """As ``Strategy.answer``; ``mean`` of every strategy with one worker."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Options of the reference that decide the answer."""
    rates: tuple[float, ...] = ()
    """Of each round, the factor of the learning rate; empty where it stays the same."""
    batches: int = 0
    """Different batches of each worker, which come again and again; 0 gives every step its own."""
    loader: Mapping[str, Any] | None = None
    """The job's ``loader``, of a probe whose batches are not synthetic."""
    reference_loader: Mapping[str, Any] | None = None
    """Likewise, of the reference."""
    rounding: str = ""
    """The precision in whose terms distances are allowed, where it is not the trial's."""

    @property
    def tolerance(self) -> str:
        """The precision in whose terms distances are allowed."""
        return self.rounding or self.trial.precision

    def job(self, workload: Workload, learning_rate: float) -> dict[str, Any]:
        """Return the job of the launch."""
        trial = self.trial.with_learning_rate(learning_rate)
        job = self._with_batches(check_job(trial, workload, self.rounds, turns=self.turns), self.loader)
        return self._with_rates(job, self.rounds)

    def reference_job(self, reference: Trial, workload: Workload, rounds: tuple[int, ...]) -> dict[str, Any]:
        """Return the job of the reference with ``rounds`` of its own and the batches of this probe."""
        return self._with_rates(
            self._with_batches(check_job(reference, workload, rounds), self.reference_loader), rounds
        )

    def _with_batches(self, job: dict[str, Any], loader: Mapping[str, Any] | None) -> dict[str, Any]:
        if loader is not None:
            return {**job, "loader": dict(loader)}
        batches = self.batches or sum(self.rounds) + self.turns
        return {**job, "loader": {**job["loader"], "distinct_batches": batches}}

    def _with_rates(self, job: dict[str, Any], rounds: tuple[int, ...]) -> dict[str, Any]:
        """Return ``job`` with the learning rate of each round, where its last ``rounds`` are those of the probe."""
        if not self.rates or rounds[-len(self.rounds) :] != self.rounds:
            return job
        before = (self.rates[0],) * (len(rounds) - len(self.rounds))
        rates = [job["optimizer"]["learning_rate"] * factor for factor in (*before, *self.rates)]
        return {**job, "schedule": {**job["schedule"], "rates": rates}}


def check_trial(trial: Trial, manifest: Manifest) -> Trial:
    """Return the check that stands for ``trial``: a small batch, whatever its own is, and synthetic input.

    Workers of emulated hosts are checked on this host, those of a site on as many of its hosts as there are workers,
    or on one where the trial has one.
    """
    here: dict[str, Any] = {
        "cluster": None,
        "hosts": 1,
        "launcher": manifest.launcher_for(trial.strategy, trial.options),
    }
    return trial.model_copy(
        update={
            "dataset": None,
            "loader": OWN.name if trial.own else SYNTHETIC.name,
            "loader_processes": 0,
            "workers": min(trial.workers, _WORKERS),
            **_in_parts(trial.accumulation),
            "threads": 1,
            "cores_per_worker": None,
            "training": _checked_training(trial),
            **(_on_site(trial) if trial.cluster and trial.cluster.kind == "found" else here if trial.cluster else {}),
        }
    )


def _in_parts(accumulation: int) -> dict[str, int]:
    """Return the micro-batches of a check, as many as the trial has but one per sample at most, and its batch."""
    parts = min(accumulation, _BATCH)
    return {"accumulation": parts, "batch_per_worker": -(-_BATCH // parts) * parts}


def _on_site(trial: Trial) -> dict[str, Any]:
    """Return the hosts of a check whose trial runs on a site: as many as the trial has, at most one per worker."""
    cluster, workers = trial.cluster, min(trial.workers, _WORKERS)
    if cluster is None:
        return {}
    per_host = -(-workers // min(workers, cluster.worker_hosts))
    own_servers = len(cluster.hosts) - cluster.worker_hosts
    found = cluster_for(workers=workers, own_servers=own_servers, workers_per_host=per_host, kind="found")
    return {"cluster": found, "hosts": len(found.hosts)}


def _checked_training(trial: Trial) -> Training | None:
    """Return what a check needs to know of a training: that there is one, and what smooths its labels."""
    smoothing = trial.training.label_smoothing if trial.training else 0.0
    return Training(epochs=1, label_smoothing=smoothing) if trial.training else None


def form_of(trial: Trial, manifest: Manifest) -> dict[str, Any]:
    """Return the options of the reference by which its optimizer has the form that a framework's manifest declares."""
    name = trial.optimizer.name
    form: dict[str, Any] = {}
    if name in {"adam", "adamw"} and manifest.adam_epsilon != "corrected":
        form["adam_epsilon"] = manifest.adam_epsilon
    if "momentum" in SETTINGS[name] and trial.training is not None and manifest.rate_in_velocity:
        form["rate_in_velocity"] = True  # which makes no difference where the rate stays
    return form


def rounds_of(steps: int) -> tuple[int, ...]:
    """Return rounds of ``steps`` steps in all; the first has one, whose update is the gradient."""
    rounds, left = [1], steps - 1
    for length in cycle(_ROUNDS):
        if left <= 0:
            return tuple(rounds)
        rounds.append(min(length, left))
        left -= length
    raise AssertionError


def probes(
    trial: Trial, workload: Workload, steps: int, repeats: int, form: Mapping[str, Any] | None = None
) -> Iterator[Probe]:
    """Yield the probes of the check ``trial``.

    Args:
        trial: what ``check_trial`` returns.
        workload: that it trains.
        steps: of a probe, at most; a workload that takes the reference long gets fewer.
        repeats: launches of a kind of probe.
        form: what ``form_of`` returns.
    """
    answer = strategy_named(trial.strategy).answer
    if answer == "blocks":
        alone = [] if trial.workers == 1 else [_in_blocks(trial.model_copy(update={"workers": 1}))]
        yield from alone + [_in_blocks(trial)] * repeats
        return
    together = trial.workers == 1 or answer == "mean"
    whole = trial if together else trial.model_copy(update={"workers": 1})
    rounds = _affordable(whole, workload, steps)
    how: dict[str, Any] = {"settings": dict(form or {})}
    if trial.training is not None:
        how["rates"] = tuple(islice(cycle(_RATES), len(rounds)))
    both = [
        Probe("as trained", well_conditioned(whole), rounds, **how),
        Probe("with momentum and weight decay", _with_all_terms(whole), rounds, **how),
    ]
    yield from islice(cycle(both), max(repeats, len(both))) if together else both[1:]
    if together:
        return
    several = {"any_order": _at_own_pace, "error_feedback": _with_feedback}[answer](trial)
    yield from [several] * repeats


def _at_own_pace(trial: Trial) -> Probe:
    return Probe("workers at their own pace", _plain(trial), (_FREE_STEPS,), turns=_TURNS, answer="any_order")


def _with_feedback(trial: Trial) -> Probe:
    return Probe(
        "what was sent",
        _plain(trial),
        (_FEEDBACK_STEPS,),
        answer="error_feedback",
        batches=_FEEDBACK_BATCHES,
    )


def _in_blocks(trial: Trial) -> Probe:
    options = dict(trial.options)
    momentum = float(options["block_momentum"])
    settings = {
        "updates": "blocks",
        "block_steps": _BLOCK_STEPS,
        "block_momentum": momentum if momentum >= 0.0 else 1.0 - 1.0 / trial.workers,
        **{name: options[name] for name in ("block_learning_rate", "nesterov", "reset_momentum")},
    }
    options["block_size"] = trial.global_batch * _BLOCK_STEPS
    in_blocks = _with_all_terms(trial).model_copy(update={"options": options})
    return Probe("blocks", in_blocks, (_BLOCK_STEPS,) * _BLOCKS, answer="blocks", settings=settings)


def _plain(trial: Trial) -> Trial:
    rate = trial.optimizer.learning_rate
    return trial.model_copy(update={"optimizer": Optimizer(learning_rate=rate, momentum=0.0)})


def well_conditioned(trial: Trial) -> Trial:
    """Return the trial with an epsilon beside which the rounding of a gradient is small.

    The first step of adam is the sign of the gradient where epsilon is smaller than it, and rounding decides over the
    sign of what is nearly zero.
    """
    optimizer = trial.optimizer
    if "epsilon" not in SETTINGS[optimizer.name] or optimizer.epsilon >= _EPSILON:
        return trial
    return trial.model_copy(update={"optimizer": optimizer.model_copy(update={"epsilon": _EPSILON})})


def _with_all_terms(trial: Trial) -> Trial:
    trial = well_conditioned(trial)
    optimizer = trial.optimizer
    update: dict[str, float] = {"weight_decay": optimizer.weight_decay or _WEIGHT_DECAY}
    if optimizer.decayed != "all":
        update["weight_decay"] = max(optimizer.weight_decay, _DECAY_OF_A_STEP / optimizer.learning_rate)
    if "momentum" in SETTINGS[optimizer.name]:
        update["momentum"] = optimizer.momentum or _MOMENTUM
    if "beta1" in SETTINGS[optimizer.name]:
        update["beta1"] = optimizer.beta1 or _MOMENTUM
    return trial.model_copy(update={"optimizer": optimizer.model_copy(update=update)})


def reference_flops(trial: Trial, workload: Workload) -> float:
    """Return what one step costs the reference; an updated weight counts as some of its FLOP."""
    cost = costs(workload)
    of_gradients = (cost.forward_flops + cost.backward_flops) * trial.global_batch
    return of_gradients + _FLOPS_PER_WEIGHT * workload.parameter_count


def _affordable(trial: Trial, workload: Workload, steps: int) -> tuple[int, ...]:
    of_step = reference_flops(trial, workload)
    return rounds_of(max(min(steps, _LEAST_STEPS), min(steps, int(_REFERENCE_FLOPS / max(of_step, 1)))))
