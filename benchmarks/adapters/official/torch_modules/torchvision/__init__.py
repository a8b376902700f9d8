"""Stands for torchvision in scripts over torch: the plain loops' models, data made once, and the marks of steps.

A step ends when the outermost optimizer's ``step`` returns; torch calls hooks around it that any user may register.
"""

import os
import sys

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


def _with_settings_of_the_race(initialize):
    """Return DeepSpeed's ``initialize``, given the race's batch and the optimizer of the adapter."""

    def called(*positional, **named):
        config = dict(named["config"], gradient_clipping=0.0, zero_allow_untested_optimizer=True)
        config["train_batch_size"] = int(os.environ["RACE_BATCH"]) * int(os.environ["RACE_WORKERS"])
        config["optimizer"] = {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}}
        return initialize(*positional, **dict(named, config=config))

    return called


if "deepspeed" in sys.modules:
    sys.modules["deepspeed"].initialize = _with_settings_of_the_race(sys.modules["deepspeed"].initialize)
