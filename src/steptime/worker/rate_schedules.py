"""Learning-rate schedules: pure functions of the step, the same numbers in every framework.

Each returns a factor of the learning rate, by a ``Moment`` of the training and the parameters of the table below it.
"""

import math
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple


class Moment(NamedTuple):
    """A step of a training, as a learning-rate schedule counts: from the end of the warm-up on."""

    step: int
    """Since the end of the warm-up, from 0."""
    steps: int
    """From the end of the warm-up to the end of the training."""
    steps_per_epoch: int
    warmup_steps: int
    losses: Tuple[float, ...] = ()
    """Of the validation set behind each epoch since the end of the warm-up."""

    @property
    def share(self) -> float:
        """The share of ``steps`` that is over, from 0 to 1."""
        return min(1.0, self.step / float(self.steps))

    @property
    def epochs(self) -> float:
        """Epochs since the end of the warm-up, not whole within an epoch."""
        return self.step / float(self.steps_per_epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the training, from 0, the warm-up included."""
        return (self.step + self.warmup_steps) // self.steps_per_epoch


class ScheduleParameter(NamedTuple):
    """What a parameter of a schedule may be."""

    default: Any
    least: float
    most: float
    whole: bool = False
    """Whether it is a whole number."""
    listed: bool = False
    """Whether it is a list, of numbers that grow."""


MINIMUM = ScheduleParameter(0.0, 0.0, 1.0)
"""Of the factor at the end, for schedules that fall to it."""


class ScheduleFunction(NamedTuple):
    """A learning-rate schedule."""

    factor: Callable[..., float]
    """Of the learning rate, by a ``Moment`` and the schedule's parameters."""
    parameters: Dict[str, ScheduleParameter]


_EPOCHS = 1e5


def constant(moment: Moment) -> float:  # noqa: ARG001 - every schedule takes a moment
    """Return 1."""
    return 1.0


def step(moment: Moment, every_epochs: int, factor: float) -> float:
    """Return ``factor`` to the power of the whole periods of ``every_epochs`` since the training began."""
    return factor ** (moment.epoch // every_epochs)


STEP = {"every_epochs": ScheduleParameter(10, 1, _EPOCHS, whole=True), "factor": ScheduleParameter(0.1, 1e-6, 1.0)}


def multi_step(moment: Moment, at_epochs: Sequence[int], factor: float) -> float:
    """Return ``factor`` to the power of those epochs of ``at_epochs`` that the training has reached.

    He et al. 2016 divide by ten after 30 and 60 of 90 epochs, which are the defaults in thirds of 30.
    """
    return factor ** sum(moment.epoch >= milestone for milestone in at_epochs)


MULTI_STEP = {
    "at_epochs": ScheduleParameter((10, 20), 1, _EPOCHS, whole=True, listed=True),
    "factor": ScheduleParameter(0.1, 1e-6, 1.0),
}


def exponential(moment: Moment, factor: float) -> float:
    """Return ``factor`` to the power of the epochs since the end of the warm-up; it falls in every step."""
    decayed: float = factor**moment.epochs
    return decayed


EXPONENTIAL = {"factor": ScheduleParameter(0.9, 1e-6, 1.0)}


def polynomial(moment: Moment, power: float, minimum: float) -> float:
    """Return minimum + (1 - minimum) * (1 - share) ** power, where ``share`` of the training is over."""
    left: float = (1.0 - moment.share) ** power
    return minimum + (1.0 - minimum) * left


POLYNOMIAL = {"power": ScheduleParameter(1.0, 0.01, 100.0), "minimum": MINIMUM}


def cosine(moment: Moment, minimum: float) -> float:
    """Return half a period of the cosine, from 1 to ``minimum`` at the end (Loshchilov, Hutter 2017)."""
    return _between(1.0, minimum, moment.share)


COSINE = {"minimum": MINIMUM}


def cosine_restarts(moment: Moment, first_epochs: int, multiplier: int, minimum: float) -> float:
    """Return half a period of the cosine again and again: over ``first_epochs``, then ``multiplier`` times as long."""
    start, length = 0.0, float(first_epochs * moment.steps_per_epoch)
    while moment.step >= start + length:
        start, length = start + length, length * multiplier
    return _between(1.0, minimum, (moment.step - start) / length)


COSINE_RESTARTS = {
    "first_epochs": ScheduleParameter(10, 1, 1e5, whole=True),
    "multiplier": ScheduleParameter(2, 1, 10, whole=True),
    "minimum": MINIMUM,
}


def one_cycle(moment: Moment, rise: float, start_factor: float, end_factor: float) -> float:
    """Return the factor of one cycle over all steps, by cosines (Smith, Topin 2018).

    Args:
        moment: the moment.
        rise: the share of the steps in which the rate rises to the learning rate.
        start_factor: of the learning rate in the first step.
        end_factor: of the learning rate in the last step.
    """
    top, last = rise * moment.steps - 1.0, moment.steps - 1.0
    if moment.step <= top:
        return _between(start_factor, 1.0, moment.step / top if top > 0.0 else 1.0)
    return _between(1.0, end_factor, min(1.0, (moment.step - top) / max(last - top, 1e-9)))


ONE_CYCLE = {
    "rise": ScheduleParameter(0.3, 0.01, 0.99),
    "start_factor": ScheduleParameter(1 / 25.0, 1e-6, 1.0),
    "end_factor": ScheduleParameter(1 / 250000.0, 0.0, 1.0),
}


def _between(first: float, last: float, share: float) -> float:
    return last + (first - last) * (1.0 + math.cos(math.pi * share)) / 2.0


def plateau(moment: Moment, factor: float, patience: int, threshold: float, minimum: float) -> float:
    """Return the factor behind the epochs whose validation losses the moment has.

    An epoch is better whose loss is below (1 - threshold) times the best so far. After more than ``patience`` epochs
    in a row that are not, the rate is multiplied by ``factor``, and the epochs are counted anew.
    """
    best, waited, current = float("inf"), 0, 1.0
    for loss in moment.losses:
        if loss < best * (1.0 - threshold):
            best, waited = loss, 0
        else:
            waited += 1
        if waited > patience:
            current, waited = max(current * factor, minimum), 0
    return current


PLATEAU = {
    "factor": ScheduleParameter(0.1, 1e-6, 0.999),
    "patience": ScheduleParameter(3, 0, 1e5, whole=True),
    "threshold": ScheduleParameter(1e-4, 0.0, 1.0),
    "minimum": MINIMUM,
}


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


def learning_rate(training: Mapping[str, Any], step: int, losses: Iterable[float] = ()) -> float:
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
    rate: float = training["learning_rate"] * RATE_SCHEDULES[chosen["name"]].factor(moment, **chosen["parameters"])
    return rate * (step + 1.0) / (warmup + 1.0) if step < warmup else rate
