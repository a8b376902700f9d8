"""Curves of workers that share the cores of a host: planted forms, and hosts whose cores suffice."""

from dataclasses import astuple, replace

import pytest
from tables import COLUMNS, row, write

from steptime.curves.curve import EvidenceError
from steptime.curves.posterior import Sampling, predict
from steptime.curves.shape import expert_priors
from steptime.curves.table import read_own_curves
from steptime.scaling.forecast import forecast
from steptime.scaling.strong import predict_strong

FEW = Sampling(log_samples=11)
HOST = {"accelerator": "EPYC", "workers_per_host": "64", "data": "synthetic", "inter_host_gbps": "", "transport": ""}
"""One host of processors, which holds all workers."""
BASE_S = 0.2


def curve_of(folder, seconds, **columns):
    rows = [row(count, step_s, **{**HOST, **columns}) for count, step_s in seconds.items()]
    (one,) = read_own_curves(write(folder, rows, (*COLUMNS, "cores_per_host", "threads_per_worker")))
    return one


def planted(workers, threads, cores, growth=1.02):
    """Return the step of so many workers, which is 2 % longer with each doubling beside the turns that they take."""
    return BASE_S * max(1.0, workers * threads / cores) * growth ** (workers.bit_length() - 1)


PLANTED = {
    "a thread a worker on two cores": (1.0, 2, (1, 2)),
    "two threads a worker on two cores": (2.0, 2, (1, 2)),
    "two threads a worker on four cores": (2.0, 4, (1, 2)),
    "input processes beside each worker": (1.6, 2, (1, 2)),
    "most of a thread": (0.7, 2, (1, 2)),
    "all measured numbers share cores": (1.0, 2, (4, 8)),
}


@pytest.mark.parametrize("more", [2, 4])
@pytest.mark.parametrize("name", PLANTED)
def test_a_forecast_holds_steps_of_workers_that_take_turns(tmp_path, name, more):
    threads, cores, counts = PLANTED[name]
    known = {count: planted(count, threads, cores) for count in counts}
    one = curve_of(tmp_path, known, cores_per_host=str(cores), threads_per_worker=str(threads))
    asked = more * counts[-1]
    (step,) = predict(one, [(asked, None)], expert_priors(), FEW)
    truth = planted(asked, threads, cores)
    assert step.low < truth < step.high
    assert step.value == pytest.approx(truth, rel=0.2)
    assert step.high / step.low < 2.5


@pytest.mark.parametrize("more", [2, 4])
def test_without_cores_such_a_forecast_is_far_too_short(tmp_path, more):
    """Which is what the columns are for."""
    (step,) = predict(curve_of(tmp_path, {1: BASE_S, 2: BASE_S}), [(2 * more, None)], expert_priors(), FEW)
    assert step.value < 0.7 * planted(2 * more, 1.0, 2)


@pytest.mark.parametrize(("cores", "threads"), [("64", "1"), ("128", "2"), ("32", "0.5"), ("1000", "")])
def test_cores_that_suffice_change_nothing(tmp_path, cores, threads):
    known = {1: 0.2, 2: 0.204, 4: 0.21}
    stated = curve_of(tmp_path, known, cores_per_host=cores, threads_per_worker=threads)
    asked = [(8, None), (64, None)]
    assert stated.setup.shared_cores is not None
    left_out = replace(stated, setup=replace(stated.setup, shared_cores=None))
    found = [predict(one, asked, expert_priors(), FEW) for one in (stated, left_out)]
    assert [astuple(step) for step in found[0]] == [astuple(step) for step in found[1]]


def test_hosts_that_are_full_share_no_more_cores(tmp_path):
    """Four workers fill a host of two cores, as further hosts are filled."""
    known = {1: 0.2, 2: 0.2, 4: 0.4}
    one = curve_of(tmp_path, known, workers_per_host="4", cores_per_host="2", inter_host_gbps="100")
    (step,) = predict(one, [(16, None)], expert_priors(), FEW)
    assert step.low < 0.42 < step.high
    assert step.value < 0.6


def test_workers_that_share_a_batch_share_cores_too(tmp_path):
    """Four workers of a quarter of the batch each, in turns on two cores, are as fast as two of a half."""
    rows = [
        {"workers": count, "step_time_s": 0.8 / count, "batch_per_worker": 64 // count, **HOST, "cores_per_host": 2}
        for count in (1, 2)
    ]
    (one,) = read_own_curves(write(tmp_path, rows, tuple(rows[0])))
    assert one.setup.one_batch
    (step,) = predict_strong(one, [(4, None)])
    assert step.low < 0.4 < step.high
    assert step.value == pytest.approx(0.4, rel=0.2)


def test_devices_share_no_cores_of_their_host(tmp_path):
    one = curve_of(tmp_path, {1: 0.2, 2: 0.2}, accelerator="A100", cores_per_host="2")
    assert one.setup.shared_cores is None


@pytest.mark.parametrize("cores", ["0", "-1", "many"])
def test_cores_that_no_host_has_are_named_with_their_line(tmp_path, cores):
    with pytest.raises(EvidenceError, match=f"line 2: cores_per_host is '?{cores}"):
        curve_of(tmp_path, {1: 0.2, 2: 0.2}, cores_per_host=cores)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"cores_per_host": "2"}, "from 3 workers of a machine on, its 2 cores are shared: each keeps 1 thread busy"),
        ({"cores_per_host": "64"}, None),
        ({}, "cores_per_host is empty: no workers are taken to share cores"),
        ({"accelerator": ""}, None),
    ],
    ids=["shared", "sufficient", "unknown", "no processor"],
)
def test_a_forecast_has_what_it_takes_of_cores(tmp_path, columns, said):
    (found,) = forecast([curve_of(tmp_path, {1: 0.2, 2: 0.2}, **columns)], [8])
    assert found.cores == said or (said and found.cores.startswith(said))
    assert found.to_json()["cores"] == found.cores


@pytest.mark.parametrize("cores", ["2", ""])
def test_a_throughput_that_does_not_grow_is_questioned_unless_workers_share_cores(tmp_path, cores):
    known = {4: 0.4, 8: 0.8}
    if cores:
        assert curve_of(tmp_path, known, cores_per_host=cores).setup.shared_cores is not None
    else:
        with pytest.raises(EvidenceError, match="have at most"):
            curve_of(tmp_path, known)
