"""A trial whose timed launches train something else than the others of its group has no rank."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import a_check, a_launch, a_store, a_trial, a_worker

from steptime.analysis.summary import summarise

RIGHT = (2.889802, 3.278326)
"""Losses of both workers of LeNet-5 behind three steps, as PyTorch, TensorFlow and Chainer record them."""
ROUNDED = (2.889803, 3.278327)


def unranked(tmp_path, losses, rounding=5e-6, **changes):
    """Return why trials have no rank, by framework; ``losses`` are those of both workers, by framework.

    Their checks showed ``rounding`` of an update; None for no check.
    """
    store = a_store(tmp_path / "results")
    rng = np.random.default_rng(1)
    for framework, own in losses.items():
        trial = a_trial(**{"framework": framework, "strategy": "allreduce", "workers": 2, **changes})
        store.add_trial(trial)
        if rounding is not None:
            about = {"framework": framework, "strategy": trial.strategy, "workers": 2, "trials": [trial.id]}
            store.append_equivalence(a_check(**about, update_rounding=rounding, update_error=rounding))
        for number in range(3):
            times = 0.1 * np.exp(rng.normal(0.0, 0.01, 30))
            workers = [
                replace(a_worker(np.cumsum(times).tolist(), rank), warmup_ends_s=[-0.3, -0.2, -0.1], loss_first=loss)
                for rank, loss in enumerate(own)
            ]
            store.append(a_launch(trial, number, workers=workers))
    return {trial.framework: trial.reason for trial in summarise(store).trials if trial.status != "ok"}


def test_the_loss_of_a_step_that_is_skipped_is_that_of_no_other(tmp_path):
    found = unranked(tmp_path, {"pytorch": RIGHT, "chainer": ROUNDED, "tensorflow": RIGHT, "mxnet": (2.17, 3.9)})

    assert found == {
        "mxnet": "its timed launches train something else: after 3 steps worker 0 had a loss of 2.17, and "
        "the others of its group have 2.8898"
    }


def test_one_worker_that_differs_is_found(tmp_path):
    found = unranked(tmp_path, {"pytorch": RIGHT, "chainer": ROUNDED, "mxnet": (RIGHT[0], 3.2)})

    assert list(found) == ["mxnet"]
    assert "worker 1 had a loss of 3.2, " in found["mxnet"]


@pytest.mark.parametrize(
    "losses",
    [
        {"pytorch": RIGHT, "chainer": ROUNDED, "tensorflow": RIGHT},
        {"pytorch": RIGHT, "chainer": (2.17, 3.9)},
        {"pytorch": (3.8546, 2.1), "chainer": (3.8539, 2.2), "tensorflow": (3.7392, 2.0), "mxnet": (3.8123, 2.3)},
    ],
    ids=["all agree", "of two nobody knows which is wrong", "a chaotic network spreads them by more than rounding"],
)
def test_right_runs_are_ranked(losses, tmp_path):
    assert unranked(tmp_path, losses) == {}


@pytest.mark.parametrize("rounding", [0.0077, None], ids=["ResNet-50's rounding", "nothing was checked"])
def test_nothing_is_claimed_of_networks_that_amplify_rounding(rounding, tmp_path):
    losses = {"pytorch": (2.0640, 2.7661), "chainer": (2.0631, 2.7660), "mxnet": (2.155, 2.7008)}

    assert unranked(tmp_path, losses, rounding) == {}


@pytest.mark.parametrize("workload", ["alexnet", "of-a-plug-in-that-is-gone"])
def test_nothing_is_claimed_of_networks_with_dropout(workload, tmp_path):
    """PyTorch and DeepSpeed draw the same masks, and MXNet others."""
    losses = {"pytorch": RIGHT, "deepspeed": RIGHT, "mxnet": (2.17, 3.9)}

    assert unranked(tmp_path, losses, workload=workload, input_shape=(3, 224, 224)) == {}


def test_workers_that_do_not_wait_for_each_other_have_losses_of_their_own(tmp_path):
    losses = {"pytorch": RIGHT, "chainer": ROUNDED, "mxnet": (2.17, 3.9)}

    assert unranked(tmp_path, losses, strategy="ps_async", servers=1) == {}
