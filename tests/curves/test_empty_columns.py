"""Curves whose tables leave columns empty: a blank is a wide belief and a question, never a slow network."""

import numpy as np
import pytest
from tables import curve

from steptime.curves.facts import all_usual_hosts, facts_of, usual_hosts
from steptime.curves.posterior import posterior, predict_curve
from steptime.curves.shape import priors_for
from steptime.curves.table import read_own_curves
from steptime.scaling.forecast import forecast

NO_NETWORK = {"inter_host_gbps": "", "nics_per_host": "", "transport": ""}
NOTHING = {**NO_NETWORK, "workers_per_host": "", "intra_host_link": "", "accelerator": "", "workload": "my_own"}
INSIDE = {1: 0.2, 2: 0.204, 4: 0.208, 8: 0.21}


def step(folder, seconds, count, **changes):
    found = curve(folder, {**seconds, count: 1.0}, holdout={count}, **changes)
    return predict_curve(found, [(count, None)])[0]


def width(prediction):
    return np.log(prediction.high / prediction.low)


@pytest.mark.parametrize("accelerator", ["V100", "A100-SXM4-80GB", "H100", "MI250X", "TPU v4", "RTX 3090", ""])
def test_a_network_that_nobody_stated_is_not_a_slow_one(tmp_path, accelerator):
    """Networks that do not slow at all are among those believed, and the middle is not a network of ten years ago."""
    found = step(tmp_path, INSIDE, 32, accelerator=accelerator, **NO_NETWORK)
    slow = step(tmp_path, INSIDE, 32, accelerator=accelerator, inter_host_gbps="5", nics_per_host="1")
    assert found.low < 1.05 * INSIDE[8]
    assert found.value < 1.5 * INSIDE[8]
    assert found.value < slow.value


@pytest.mark.parametrize("rate", ["25", "100", "400"])
def test_an_interval_without_the_network_holds_the_steps_over_usual_ones(tmp_path, rate):
    changes = {"accelerator": "V100", "transport": "rdma"}
    known = step(tmp_path, INSIDE, 32, inter_host_gbps=rate, nics_per_host="1", **changes)
    found = step(tmp_path, INSIDE, 32, accelerator="V100", **NO_NETWORK)
    assert found.low < known.value < found.high


@pytest.mark.parametrize("column", ["inter_host_gbps", "transport", "intra_host_link", "workers_per_host"])
def test_an_empty_column_never_makes_a_prediction_surer(tmp_path, column):
    full = step(tmp_path, INSIDE, 32)
    assert width(step(tmp_path, INSIDE, 32, **{column: ""})) > 0.97 * width(full)


def test_consumer_cards_over_pcie_exchange_more_slowly_and_less_surely(tmp_path):
    known = {1: 0.1, 2: 0.11}
    changes = {"intra_host_link": "pcie", "workers_per_host": "8"}
    centre = step(tmp_path, known, 8, accelerator="P100", **changes)
    consumer = step(tmp_path, known, 8, accelerator="GeForce RTX 2080 Ti", **changes)
    assert consumer.high > centre.high
    assert width(consumer) > width(centre)


@pytest.mark.parametrize("accelerator", ["MI100", "Gaudi2", "Ascend 910B", "TPU v5e", "Xeon 8480", "a new one", ""])
def test_hosts_of_any_accelerator_are_predicted_with_wide_links(tmp_path, accelerator):
    found = curve(
        tmp_path, {**INSIDE, 64: 1.0}, holdout={64}, accelerator=accelerator, intra_host_link="", **NO_NETWORK
    )
    spreads = facts_of(found.setup).spreads
    assert spreads["unstated_inside"] >= 0.5
    assert spreads["unstated_network"] >= 1.0
    (one,) = predict_curve(found, [(64, None)])
    assert np.isfinite([one.low, one.value, one.high]).all()
    assert one.high > 1.2 * one.low


def test_what_is_stated_leaves_nothing_open(tmp_path):
    assert set(facts_of(curve(tmp_path, {1: 0.2, 2: 0.2}).setup).spreads.values()) == {0.0}


def test_a_table_may_state_the_size_of_a_model_that_is_in_no_library(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "curve,workers,step_time_s,workload,parameters\none,1,0.2,my_own,1000000\none,2,0.2,my_own,1000000\n"
    )
    facts = facts_of(read_own_curves(path)[0].setup)
    assert facts.gradient_bytes == 4e6
    assert facts.spreads["unstated_gradients"] == 0.0


def shares(found):
    each = posterior(found, [(64, None)], priors_for(""))
    assert sum(one.share for one in each) == pytest.approx(1.0)
    return {one.host_size: one.share for one in each if not one.spread}


def test_points_say_how_many_workers_share_a_host_where_the_table_does_not(tmp_path):
    jump = {1: 0.2, 2: 0.201, 4: 0.202, 8: 0.3, 16: 0.31}
    found = shares(curve(tmp_path, jump, workers_per_host="", inter_host_gbps="10"))
    assert max(found, key=found.get) == 4


def test_a_stated_host_is_the_only_one_assumed(tmp_path):
    assert shares(curve(tmp_path, {1: 0.2, 2: 0.2}, workers_per_host="6")) == {6.0: 1.0}


def test_hosts_that_a_stated_network_joins_are_finite(tmp_path):
    assert np.inf not in shares(curve(tmp_path, {1: 0.2, 2: 0.2}, workers_per_host=""))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-SXM4-40GB", "nvidia_ampere"),
        ("nvidia a100", "nvidia_ampere"),
        ("NVIDIA H100 PCIe", "nvidia_hopper"),
        ("Tesla V100-SXM2-16GB", "nvidia_volta"),
        ("K80", "nvidia_pascal"),
        ("RTX-4090", "nvidia_consumer"),
        ("GeForce RTX 2080Ti", "nvidia_consumer"),
        ("rtx4090", "nvidia_consumer"),
        ("RTX 6000 Ada", "nvidia_workstation"),
        ("RTX A6000", "nvidia_workstation"),
        ("A10G", "nvidia_workstation"),
        ("AMD Instinct MI250X", "amd"),
        ("mi300x", "amd"),
        ("TPU v5e", "other"),
        ("Ascend 910B", "other"),
        ("AMD EPYC 7742", "processor"),
        ("unknown", "unknown"),
        ("", "unknown"),
    ],
)
def test_accelerators_are_known_however_they_are_spelled(text, name):
    assert usual_hosts(text).name == name


@pytest.mark.parametrize("found", all_usual_hosts(), ids=lambda each: each.name)
def test_beliefs_about_hosts_add_up_to_one(found):
    assert sum(found.hosts.values()) == pytest.approx(1.0)


def own(folder, rows, columns="workers,step_time_s"):
    path = folder / "own.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    (found,) = forecast(read_own_curves(path), [16, 64, 128])
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The forecast of a table that has workers and times alone."""
    return own(tmp_path_factory.mktemp("bare"), [f"{count},{seconds}" for count, seconds in INSIDE.items()])


def ratio_of(found):
    return found.points[-1].step_s.high / found.points[-1].step_s.low


def test_a_bare_table_is_asked_for_all_that_it_leaves_open_hosts_network_and_store_first(bare):
    columns = [each.column for each in bare.empty_columns]
    assert set(columns[:3]) == {"workers_per_host", "inter_host_gbps", "input_samples_per_s"}
    links = {"inter_host_gbps", "workers_per_host", "intra_host_link", "transport"}
    assert set(columns) == {*links, "parameters", "input_samples_per_s"}


def test_which_link_is_the_first_question_where_hosts_are_known(tmp_path):
    rows = [f"{count},{seconds},8,resnet50" for count, seconds in {1: 0.05, 2: 0.06, 4: 0.065, 8: 0.07}.items()]
    found = own(tmp_path, rows, "workers,step_time_s,workers_per_host,workload")
    assert found.empty_columns[0].column == "inter_host_gbps"


def test_a_bare_table_never_gives_a_confident_number(bare):
    assert ratio_of(bare) > 2


def test_every_further_point_is_expected_to_narrow_the_interval(bare):
    ratios = {each.workers: each.ratio for each in bare.further_points}
    assert set(ratios) == {16, 32, 64}
    assert all(ratio < ratio_of(bare) for ratio in ratios.values())


def test_a_point_nearer_to_the_target_says_more_of_it(bare):
    ratios = {each.workers: each.ratio for each in bare.further_points}
    assert ratios[64] < ratios[32] < ratios[16]


def test_measuring_the_further_point_narrows_as_it_was_expected_to(tmp_path, bare):
    """A point where the forecast had its middle: the interval then is what was expected, within a factor of two."""
    rows = [f"{count},{seconds}" for count, seconds in {**INSIDE, 64: bare.points[1].step_s.value}.items()]
    found = own(tmp_path, rows)
    expected = {each.workers: each.ratio for each in bare.further_points}[64]
    assert np.log(ratio_of(found)) < 2 * np.log(expected)


def test_a_table_with_every_column_is_asked_nothing(tmp_path):
    hosts = "accelerator,workers_per_host,intra_host_link,transport,inter_host_gbps,nics_per_host"
    columns = f"workers,step_time_s,workload,data,{hosts}"
    rest = "resnet50,synthetic,V100,8,nvlink,rdma,100,1"
    found = own(tmp_path, [f"{count},{seconds},{rest}" for count, seconds in INSIDE.items()], columns)
    assert found.empty_columns == ()
