"""Stands for torchvision in scripts over torch: the plain loops' models, data made once, and the marks of steps.

A step ends when the outermost optimizer's ``step`` returns; torch calls hooks around it that any user may register.
"""

import race_marks
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torchvision import datasets, models, transforms

__all__ = ["datasets", "models", "transforms"]

_depth = [0]


def _begin(*_):
    _depth[0] += 1


def _end(*_):
    _depth[0] -= 1
    if not _depth[0]:  # Horovod's optimizer calls that of torch within its own step
        race_marks.note()


register_optimizer_step_pre_hook(_begin)
register_optimizer_step_post_hook(_end)
