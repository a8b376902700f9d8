"""A trial that computes faster than its devices can has no rank; nothing is said where nothing is known."""

import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.summary import summarise
from steptime.catalog.cluster import cluster_for
from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.results.peaks import PEAKS, Peak, StoredPeaks
from steptime.validity.plausibility import implausible

TWO_CORES = {"machine_threads": 2}
NO_PEAKS = StoredPeaks()
LENET = {"workload": "lenet5", "input_shape": (1, 28, 28), "batch_per_worker": 64}


def peaks(flop_per_s, device="cpu", precision="fp32"):
    threads = 1 if device == "cpu" else 0
    measured = Peak(
        device=device, precision=precision, threads=threads, library="numpy", version="2", size=9,
        flop_per_s=[flop_per_s],
    )  # fmt: skip
    return StoredPeaks(peaks=[measured])


@pytest.mark.parametrize("samples_per_s", [31e6, 46e6, 119e6])
def test_millions_of_samples_a_second_on_two_cores_are_no_training(samples_per_s):
    found = implausible(a_trial(**LENET), 64 / samples_per_s, TWO_CORES, NO_PEAKS)
    assert found is not None
    assert "the fastest processor of 2 threads allows 1.79e+12" in found


@pytest.mark.parametrize(
    ("samples_per_s", "reported"), [(12_646, "ps_async of the issue"), (40_000, "a fast core"), (300_000, "many cores")]
)
def test_what_processors_reach_is_plausible(samples_per_s, reported):
    assert implausible(a_trial(**LENET), 64 / samples_per_s, TWO_CORES, NO_PEAKS) is None, reported


FLOPS = costs(build_workload("mlp")).least_flops * 8


def test_a_measured_peak_bounds_more_closely():
    step_s = FLOPS / 3e10
    assert implausible(a_trial(), step_s, TWO_CORES, peaks(2e10)) is None
    assert "2 times the measured peak allows 2e+10" in implausible(a_trial(), step_s, TWO_CORES, peaks(1e10))
    assert implausible(a_trial(), step_s, TWO_CORES, peaks(1e10, precision="bf16")) is None


def test_a_data_sheet_bounds_a_device():
    machine = {**TWO_CORES, "gpus": [{"name": "NVIDIA A100-SXM4-40GB"}]}
    trial = a_trial(device="cuda", precision="bf16")
    assert implausible(trial, FLOPS / 380e12, machine, NO_PEAKS) is None
    assert "1.25 times the data sheet's peak" in implausible(trial, FLOPS / 400e12, machine, NO_PEAKS)


@pytest.mark.parametrize(
    ("changes", "machine"),
    [
        ({}, {}),
        ({"workload": "unknown"}, TWO_CORES),
        ({"device": "cuda"}, {**TWO_CORES, "gpus": [{"name": "a GPU of tomorrow"}]}),
        ({"cluster": cluster_for(workers=1, own_servers=0).model_copy(update={"kind": "found"})}, TWO_CORES),
    ],
    ids=["a machine that does not tell", "a workload of unknown cost", "an unknown device", "hosts elsewhere"],
)
def test_nothing_is_said_where_nothing_is_known(changes, machine):
    assert implausible(a_trial(**changes), 1e-12, machine, NO_PEAKS) is None


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_the_least_products_are_not_more_than_those_of_the_model(name):
    found = costs(build_workload(name))
    assert 0 < found.least_flops < found.model_flops


def test_it_is_ranked_nowhere_and_says_why(tmp_path):
    store = a_store(tmp_path / "r")
    right, wrong = a_trial(**LENET), a_trial(**LENET, strategy="allreduce")
    for trial, step_s in ((right, 1e-3), (wrong, 5e-7)):
        store.add_trial(trial)
        store.append(a_launch(trial, times=[step_s] * 40))
    store.set_machine({"machine_threads": 2, "cores": 2})
    store.put(PEAKS, {})
    summary = summarise(store)
    found = {each.id: each for each in summary.trials}
    assert [each.trial for each in summary.ranking] == [right.id]
    assert found[wrong.id].status == "unranked"
    assert "no device here is so fast" in found[wrong.id].reason
