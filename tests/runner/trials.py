"""The trial that tests of the runner change in what matters to them."""

from typing import Any

from steptime.study.trial import Trial


def trial(framework: str = "reference", **changes: Any) -> Trial:
    """Return LeNet-5 on made-up images with one worker, or what ``changes`` makes of it."""
    settings = {
        "strategy": "single",
        "workload": "lenet5",
        "input_shape": (1, 28, 28),
        "classes": 10,
        "dataset": None,
        "loader": "synthetic",
        "device": "cpu",
        "precision": "fp32",
        "workers": 1,
        "batch_per_worker": 4,
    }
    return Trial(framework=framework, **{**settings, **changes})
