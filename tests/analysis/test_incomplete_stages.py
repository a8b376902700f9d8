"""A stage of a broken down step that leaves something out is named; a complete one is not."""

import pytest
from launch_phases import STAGES, launch_of
from simulated import a_trial

from steptime.analysis.ablation.breakdown import break_down

PAIR = a_trial(strategy="allreduce", workers=2)


def flags_of(trial=PAIR, loading_s=1e-5, **stages):
    launches = [launch_of(seed, stages={**STAGES, "step": 1e-5, **stages}) for seed in range(3)]
    for launch in launches:
        for worker in launch.workers:
            worker.stages["input"] = [[loading_s] * len(block) for block in worker.stages["step"]]
    return [flag for flag in break_down(trial, launches, [0.04]).flags if "leaves something" in flag]


@pytest.mark.parametrize("missing_s", [0.005, 0.01, 0.02])
def test_an_exchange_that_is_missing_from_its_stage_is_named(missing_s):
    """Its time would be called waiting for a loader that loads nothing."""
    (flag,) = flags_of(exchange=1e-5, step=missing_s)
    assert "the stage exchange leaves something of the step out" in flag


def test_a_complete_stage_is_not():
    assert flags_of() == []


def test_a_loader_that_takes_its_time_explains_it():
    assert flags_of(step=0.005, loading_s=0.006) == []


def test_other_loaders_may_slow_the_computation_down():
    trial = a_trial(strategy="allreduce", workers=2, loader="native", dataset="cifar10")
    assert flags_of(trial, step=0.01) == []
