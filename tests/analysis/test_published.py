"""Published ratios beside measured ones, on launches whose true ratio is known."""

from typing import Any

import numpy as np
import pytest

from steptime.analysis.published import average_ratio
from steptime.catalog.cluster import Cluster, Host
from steptime.statistics.comparison import Measured
from steptime.statistics.launch_times import reduce_times
from steptime.study.trial import Trial

CLAIM = {"slower": {"frameworks": ["slow"]}, "faster": {"frameworks": ["fast"], "strategies": ["allreduce"]}}


def ranked(
    framework: str,
    seconds: float,
    *,
    workload: str = "lenet5",
    strategy: str = "allreduce",
    loader: str = "synthetic",
    **changes: Any,
) -> Measured:
    """Return a trial of three launches whose steps take ``seconds``, give or take a percent."""
    trial = Trial(
        framework=framework,
        strategy=strategy,
        workload=workload,
        input_shape=(1, 28, 28),
        classes=10,
        dataset=None,
        loader=loader,
        device="cpu",
        precision="fp32",
        **{"workers": 2, "batch_per_worker": 8, **changes},
    )
    stream = np.random.default_rng([framework == "slow", len(workload), len(strategy)])
    times = [seconds * np.exp(stream.normal(0, 0.01)) * np.exp(stream.normal(0, 0.01, 50)) for _ in range(3)]
    return Measured(trial, reduce_times(times))


def test_the_mean_over_workloads_is_geometric_and_its_interval_holds_the_truth() -> None:
    measured = [
        ranked("slow", 4.0),
        ranked("fast", 1.0),
        ranked("slow", 1.0, workload="resnet50"),
        ranked("fast", 1.0, workload="resnet50"),
    ]

    found = average_ratio(CLAIM, measured)

    assert found.pairs == 2
    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.0 < found.high
    assert found.value == pytest.approx(2.0, rel=0.03)
    assert found.least == pytest.approx(1.0, rel=0.05)
    assert found.most == pytest.approx(4.0, rel=0.05)


def test_trials_of_different_groups_are_not_compared() -> None:
    assert average_ratio(CLAIM, [ranked("slow", 4.0), ranked("fast", 1.0, workload="resnet50")]).value is None


def test_strategies_that_the_claim_does_not_name_are_left_out() -> None:
    measured = [ranked("slow", 4.0), ranked("fast", 1.0), ranked("fast", 9.0, strategy="ps_async")]

    assert average_ratio(CLAIM, measured).pairs == 1


def test_swapping_the_sides_inverts_the_mean() -> None:
    measured = [ranked("slow", 4.0), ranked("fast", 1.0)]
    swapped = {"slower": CLAIM["faster"], "faster": CLAIM["slower"]}

    one, other = average_ratio(CLAIM, measured), average_ratio(swapped, measured)

    assert one.value is not None
    assert other.value == pytest.approx(1.0 / one.value)


def test_a_claim_about_loaders_compares_trials_that_differ_in_their_loader_only() -> None:
    both = ["pytorch", "horovod_pytorch"]
    claim = {
        "slower": {"frameworks": both, "loaders": ["native"]},
        "faster": {"frameworks": both, "loaders": ["dali"]},
    }
    measured = [
        ranked("pytorch", 2.0, loader="native"),
        ranked("pytorch", 1.0, loader="dali"),
        ranked("horovod_pytorch", 8.0, loader="native"),
        ranked("horovod_pytorch", 4.0, loader="dali"),
    ]

    found = average_ratio(claim, measured)

    assert found.pairs == 2
    assert found.value == pytest.approx(2.0, rel=0.03)


def test_a_claim_about_workers_compares_the_times_of_as_many_samples() -> None:
    claim = {
        "slower": {"frameworks": ["pytorch"], "workers": [1]},
        "faster": {"frameworks": ["pytorch"], "workers": [4]},
    }
    one, four = ranked("pytorch", 1.0, strategy="single"), ranked("pytorch", 2.0)
    measured = [
        Measured(one.trial.model_copy(update={"workers": 1}), one.launches),
        Measured(four.trial.model_copy(update={"workers": 4}), four.launches),
    ]

    found = average_ratio(claim, measured)

    assert found.value == pytest.approx(4 * 1.0 / 2.0, rel=0.03)


def test_synthetic_batches_stand_for_any_dataset_in_a_claim_about_loaders() -> None:
    claim = {
        "slower": {"frameworks": ["pytorch"], "loaders": ["native"]},
        "faster": {"frameworks": ["pytorch"], "loaders": ["synthetic"]},
    }
    slow = ranked("pytorch", 3.0, loader="native")
    reading = Measured(slow.trial.model_copy(update={"dataset": "photos"}), slow.launches)

    assert average_ratio(claim, [reading, ranked("pytorch", 1.0)]).value == pytest.approx(3.0, rel=0.03)


def test_a_claim_about_batches_compares_the_times_of_as_many_samples() -> None:
    claim = {
        "slower": {"frameworks": ["fast"], "batch_per_worker": [2]},
        "faster": {"frameworks": ["fast"], "batch_per_worker": [8]},
    }
    measured = [ranked("fast", 1.0, batch_per_worker=2), ranked("fast", 2.0, batch_per_worker=8)]

    assert average_ratio(claim, measured).value == pytest.approx(2.0, rel=0.03)


def test_a_claim_about_workers_compares_emulated_hosts_of_one_kind_only() -> None:
    claim = {"slower": {"frameworks": ["fast"], "workers": [1]}, "faster": {"frameworks": ["fast"], "workers": [2]}}
    even, slow = Host(), Host(cpu_share=0.5)
    measured = [
        ranked("fast", 1.0, strategy="single", workers=1, cluster=Cluster(hosts=(even,), worker_hosts=1)),
        ranked("fast", 1.0, cluster=Cluster(hosts=(even, even), worker_hosts=2)),
        ranked("fast", 5.0, cluster=Cluster(hosts=(even, slow), worker_hosts=2)),
    ]

    found = average_ratio(claim, measured)

    assert (found.pairs, found.value) == (1, pytest.approx(2.0, rel=0.03))
