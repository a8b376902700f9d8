"""All learning-rate schedules by name, and the rate of a step of a training, its warm-up included."""

from typing import Callable, Dict, NamedTuple

from steptime.worker.rate_schedules.cosine import COSINE, COSINE_RESTARTS, cosine, cosine_restarts
from steptime.worker.rate_schedules.moment import Moment, ScheduleParameter
from steptime.worker.rate_schedules.one_cycle import ONE_CYCLE, one_cycle
from steptime.worker.rate_schedules.plateau import PLATEAU, plateau
from steptime.worker.rate_schedules.polynomial import POLYNOMIAL, polynomial
from steptime.worker.rate_schedules.steps import EXPONENTIAL, MULTI_STEP, STEP, constant, exponential, multi_step, step


class ScheduleFunction(NamedTuple):
    """A learning-rate schedule."""

    factor: Callable[..., float]
    """Of the learning rate, by a ``Moment`` and the schedule's parameters."""
    parameters: Dict[str, ScheduleParameter]


RATE_SCHEDULES = {
    "constant": ScheduleFunction(constant, {}),
    "step": ScheduleFunction(step, STEP),
    "multi_step": ScheduleFunction(multi_step, MULTI_STEP),
    "exponential": ScheduleFunction(exponential, EXPONENTIAL),
    "polynomial": ScheduleFunction(polynomial, POLYNOMIAL),
    "cosine": ScheduleFunction(cosine, COSINE),
    "cosine_restarts": ScheduleFunction(cosine_restarts, COSINE_RESTARTS),
    "one_cycle": ScheduleFunction(one_cycle, ONE_CYCLE),
    "plateau": ScheduleFunction(plateau, PLATEAU),
}  # type: Dict[str, ScheduleFunction]


def learning_rate(training, step, losses=()):
    """Return the learning rate of a step.

    The warm-up rises linearly: its step s of W has (s + 1) / (W + 1) of the rate that follows it. The schedule begins
    where the warm-up ends; only the epochs of ``step`` and ``multi_step`` are those of the whole training.

    Args:
        training: the job's ``training``.
        step: from 0, over all epochs.
        losses: of the validation set behind each epoch that is over, which ``plateau`` looks at.
    """
    warmup, per_epoch = training["warmup_steps"], training["steps_per_epoch"]  # type: Any, Any
    chosen = training["rate_schedule"]
    moment = Moment(
        step=max(0, step - warmup),
        steps=max(1, training["epochs"] * per_epoch - warmup),
        steps_per_epoch=per_epoch,
        warmup_steps=warmup,
        losses=tuple(losses)[warmup // per_epoch :],
    )
    rate = training["learning_rate"] * RATE_SCHEDULES[chosen["name"]].factor(moment, **chosen["parameters"])
    return rate * (step + 1.0) / (warmup + 1.0) if step < warmup else rate
