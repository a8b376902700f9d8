"""The oracle: the losses and weights that the reference computes for a check, and how much of them is rounding."""

from dataclasses import dataclass
from pathlib import Path

from steptime.runner.equivalence.tolerances import relative_error, update_error, weight_error
from steptime.runner.equivalence.weight_stream import InitialWeights, SavedWeights, Weights
from steptime.runner.executor import Executor
from steptime.runner.jobs import check_job
from steptime.study.strategies import SINGLE
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload

REFERENCE = "reference"
_LARGEST_ROUNDING = 0.05
"""Of an update. Beyond it, rounding begins to look like a fault, and the case is looked at after fewer steps."""
_LARGEST_GROWTH = 2.0
"""Of the loss over its first value. Beyond it training diverges, where activations are in the thousands, a rounded one
near zero decides over whole rows, and some frameworks cap the loss."""
_TENTHS = 3
"""How often the learning rate may be divided by ten."""


@dataclass(frozen=True)
class Rounding:
    """How far the reference in single precision is from itself in double precision: what no framework can better."""

    first_loss: float
    last_loss: float
    weights: float
    update: float


@dataclass(frozen=True)
class Truth:
    """What the reference computed, in double precision."""

    steps: int
    learning_rate: float
    losses: list[float]
    """Of worker 0, one per step."""
    weights: Weights
    initial: Weights
    """Before the first step."""
    rounding: Rounding


@dataclass(frozen=True)
class Oracle:
    """Asks the reference, in a scratch folder."""

    executor: Executor
    scratch: Path

    def truth(self, trial: Trial, workload: Workload, steps: int) -> Truth | str:
        """Return what ``trial``'s workers must compute together, or why the reference could not say.

        The reference computes every worker's share with its own batch statistics in one process and averages the
        gradients: exactly what a synchronous strategy must do, whatever layers the workload has. Where rounding
        alone changes an update by more than 5 % after ``steps`` steps, half as many are taken, down to one. Where
        training diverges, the learning rate is a tenth, down to a thousandth of the trial's.
        """
        initial = InitialWeights(workload.to_json()["layers"], trial.seed)
        tenths = 0
        while True:
            double = self._ask(trial, workload, steps, bits=64)
            if isinstance(double, str):
                return double
            rate = trial.optimizer.learning_rate
            if _diverges(double[0]) and tenths < _TENTHS:
                trial, tenths = trial.with_learning_rate(rate / 10), tenths + 1
                continue
            single = self._ask(trial, workload, steps, bits=32)
            if isinstance(single, str):
                return single
            rounding = Rounding(
                first_loss=relative_error(single[0][0], double[0][0]),
                last_loss=relative_error(single[0][-1], double[0][-1]),
                weights=weight_error(single[1], double[1])[0],
                update=update_error(single[1], double[1], initial)[0],
            )
            if rounding.update <= _LARGEST_ROUNDING or steps == 1:
                return Truth(steps, rate, double[0], double[1], initial, rounding)
            steps //= 2

    def _ask(self, trial: Trial, workload: Workload, steps: int, *, bits: int) -> tuple[list[float], Weights] | str:
        reference = trial.model_copy(
            update={
                "framework": REFERENCE,
                "strategy": SINGLE.name,
                "precision": "fp32",
                "device": "cpu",
                "workers": 1,
                "servers": 0,
                "launcher": "local",
                "options": {"shards": trial.workers, "bits": bits},
            }
        )
        folder = self.scratch / f"truth-{trial.id}-{bits}"
        job = check_job(reference, workload, steps=steps, save_weights=True)
        ran = self.executor.launch(reference, job, folder, last_record="check", pinned=False)
        if ran.reason:
            return f"the reference failed: {ran.reason}"
        losses: list[float] = ran.collected.worker(0)["check"]["losses"]
        return losses, read_weights(folder, 0)


def _diverges(losses: list[float]) -> bool:
    # Each by itself: Python's maximum passes over what is no number.
    return not all(loss <= _LARGEST_GROWTH * losses[0] for loss in losses)


def weights_path(folder: Path, rank: int) -> Path:
    """Return where a worker of a check saves its weights."""
    return folder / f"weights-{rank}.npz"


def read_weights(folder: Path, rank: int) -> SavedWeights:
    """Return the weights that a worker saved; the file must stay as long as they are looked at."""
    return SavedWeights(weights_path(folder, rank))
