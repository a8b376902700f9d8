"""What moves a prediction: links and values from a prior, halved and doubled."""

from dataclasses import replace

import numpy as np
import pytest
from gpu_hosts import a_gpu_observation, a_gpu_profile
from world import World, a_profile, asked, observed

from steptime.fitting.posterior import DRAWS
from steptime.fitting.profile import LinkEstimate
from steptime.fitting.step_model import INNER
from steptime.predict.predict import predict
from steptime.predict.query import read_queries
from steptime.predict.sensitivity import Sensitivity, doubt_of_shared_cores, sensitivities
from steptime.report.forecasts.decisions import deciding_value
from steptime.results.json_form import Interval


@pytest.fixture(scope="module")
def gpu_host():
    return a_gpu_profile(a_gpu_observation(8, 0.111, 0.030))


def moved(profile, workers, *overrides):
    rows = sensitivities(asked(profile, workers, *overrides))
    return {row.name: row for row in rows}


def test_twice_the_bandwidth_is_the_step_of_a_link_of_twice_the_rate(gpu_host):
    steps = [
        asked(gpu_host, 64, "workers_per_host=8", f"interconnect.bandwidth={rate}Gbit/s").step_s.value
        for rate in (5, 10)
    ]
    row = moved(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")["bandwidth between hosts"]
    assert row.doubled.value == pytest.approx(steps[1] / steps[0], rel=0.02)


def test_the_largest_comes_first(gpu_host):
    prediction = asked(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")
    changes = [row.moves for row in sensitivities(prediction)]
    assert changes == sorted(changes, reverse=True)


def test_a_stated_bandwidth_is_stated_and_its_latency_assumed(gpu_host):
    rows = moved(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")
    assert (rows["bandwidth between hosts"].how, rows["latency between hosts"].how) == ("stated", "assumed")


def test_a_link_that_was_measured_is_not_assumed():
    rows = moved(a_profile(observed(World(), 0)), 2, "batch_per_worker=32")
    assert {row.how for name, row in rows.items() if name.startswith(("bandwidth", "latency"))} == {"measured"}


@pytest.mark.parametrize(("source", "how"), [("prior", "fitted"), ("believed", "fitted"), ("net", "measured")])
def test_a_link_that_steps_alone_show_is_fitted(source, how):
    profile = a_profile(observed(World(), 0))
    groups = [
        group.model_copy(
            update={
                "measured": [
                    each.model_copy(update={"link": each.link and each.link.model_copy(update={"source": source})})
                    for each in group.measured
                ]
            }
        )
        for group in profile.groups
    ]
    rows = moved(profile.model_copy(update={"groups": groups, "net": []}), 2, "batch_per_worker=32")
    assert {row.how for name, row in rows.items() if name.startswith(("bandwidth", "latency"))} == {how}


def row(name, how, value, low, high):
    unmoved = Interval(1.0, 1.0, 1.0)
    return Sensitivity(name, how, Interval(value, low, high), unmoved)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1.0, 0.79, 1.0)], "Of assumed values only the latency 0 may change it by 1 %: "),
        ([(1.0, 1.0, 1.42)], "Of assumed values only the latency 0 may change it by 1 %: "),
        ([(1.002, 1.0, 1.003), (1.0, 0.9, 1.0)], "only the latency 1 may change it by 1 %: 1.00x (0.90 to 1.00)"),
        ([(1.002, 0.995, 1.005)], "No assumed value changes it by 1 %."),
        ([], "No assumed value changes it by 1 %."),
        ([(1.1, 1.0, 1.2)], "Of assumed values it is the latency 0: "),
    ],
)
def test_an_assumed_value_that_may_move_a_step_by_its_interval_is_named(rows, words):
    assumed = [row(f"latency {place}", "assumed", *ends) for place, ends in enumerate(rows)]
    assert words in deciding_value([row("bandwidth", "stated", 1.7, 1.6, 1.8), *assumed])


def test_a_stated_value_is_without_effect_only_where_its_interval_is():
    first = row("latency", "assumed", 1.7, 1.6, 1.8)
    without = [deciding_value([first, row("rate", "stated", 1.001, 1.0, high)]) for high in (1.005, 1.2)]
    assert ["less than 1 %" in text for text in without] == [True, False]


def test_where_no_value_is_expected_to_move_a_step_the_one_that_may_is_named():
    wide, narrow = row("rate", "stated", 1.001, 0.8, 1.0), row("rate", "stated", 1.001, 0.999, 1.002)
    other = row("latency", "assumed", 1.002, 0.999, 1.003)
    assert "What decides most is the rate (stated): 1.00x (0.80 to 1.00)" in deciding_value([other, wide])
    assert deciding_value([narrow]).startswith("No value that a link or a prior gives moves the step by 1 %")


def test_values_that_were_measured_are_left_out():
    profile = a_profile(observed(World(), 0))
    assert not {"slowdown of workers that share a host", "time to load a sample"} & moved(profile, 2).keys()


def test_one_worker_depends_on_no_link(gpu_host):
    assert not any("between" in name for name in moved(gpu_host, 1))


def test_shares_of_a_step_add_up_to_all_of_it(gpu_host):
    for prediction in predict(gpu_host, [1, 8], read_queries([], gpu_host)):
        if prediction.step_s:
            assert sum(share.value for share in prediction.made_of.values()) == pytest.approx(1.0)


def test_communication_takes_a_larger_share_over_a_slower_link(gpu_host):
    quick, slow = (
        asked(gpu_host, 64, "workers_per_host=8", f"interconnect.bandwidth={rate}").made_of["communication"].value
        for rate in ("100Gbit/s", "5Gbit/s")
    )
    assert slow > 2 * quick


def crowded(factor, source="net", cores=2, per_host=2):
    """A prediction of hosts of workers whose latency inside is so many times that of messages alone."""
    profile = a_profile(observed(World(), 0))
    asked_for = [
        "hosts=4",
        f"workers_per_host={per_host}",
        f"cores_per_host={cores}",
        "interconnect.bandwidth=10Gbit/s",
    ]
    found = asked(profile, 4 * per_host, *asked_for)
    inside = LinkEstimate(latency_s=1e-4, rate=1e9, source=source, between_hosts=False)
    topology = replace(found.inputs.topology, inner=inside, inner_factors=True)
    parameters = {**found.inputs.parameters, INNER[0]: np.full(DRAWS, factor)}
    return replace(found, inputs=replace(found.inputs, topology=topology, parameters=parameters))


@pytest.mark.parametrize("factor", [2.5, 12.9, 100.0])
def test_a_latency_that_was_fitted_to_workers_who_share_cores_is_called_that(factor):
    text = doubt_of_shared_cores(crowded(factor))
    assert f"{factor:.3g} times the 100 µs that messages alone take there" in text
    assert "every step of the exchange over further hosts is taken to spend it, which nothing has shown" in text


@pytest.mark.parametrize("changes", [{"factor": 1.2}, {"source": "prior"}, {"cores": 8}])
def test_a_latency_of_messages_alone_is_not_doubted(changes):
    assert not doubt_of_shared_cores(crowded(**{"factor": 12.9, **changes}))


def test_no_latency_of_devices_or_of_one_worker_is_doubted(gpu_host):
    several = asked(gpu_host, 64, "workers_per_host=8", "interconnect.bandwidth=5Gbit/s")
    assert not any(map(doubt_of_shared_cores, [several, asked(gpu_host, 1), asked(gpu_host, 2)]))
