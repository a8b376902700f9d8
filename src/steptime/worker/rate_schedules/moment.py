"""The moment of a training at which a learning-rate schedule is asked, and the parameters that schedules have."""

from typing import Any, NamedTuple, Tuple


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
    def share(self):
        """The share of ``steps`` that is over, from 0 to 1."""
        return min(1.0, self.step / float(self.steps))

    @property
    def epochs(self):
        """Epochs since the end of the warm-up, not whole within an epoch."""
        return self.step / float(self.steps_per_epoch)

    @property
    def epoch(self):
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
