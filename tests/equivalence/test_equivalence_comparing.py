"""How sketches of a framework's weights are compared with the right ones, and how good sketches are."""

import math
from dataclasses import replace

import numpy as np
import pytest

from steptime.catalog.workloads.table import build_workload
from steptime.equivalence.distance import (
    Distance,
    Round,
    distances,
    samples_into,
    with_usual_lengths,
    worst_fault,
    wrong_slope,
)
from steptime.equivalence.loaders import one_layer
from steptime.equivalence.probes import rounds_of
from steptime.worker.weights import LENGTH, Sketcher

START = {"a.weight": np.linspace(-1, 1, 12), "a.bias": np.zeros(3)}
END = {"a.weight": START["a.weight"] + 0.1, "a.bias": np.array([0.01, -0.02, 0.0])}
RIGHT = Round(1, START, END, dict.fromkeys(END, 1e-6), 1.0, 1e-7)


def worst(end: dict[str, np.ndarray], right: Round = RIGHT, precision: str = "fp32"):
    return max(distances(right.start, end, right, precision), key=lambda each: each.excess)


def test_the_right_weights_have_no_distance():
    assert worst(END).distance == 0.0


def test_an_update_that_was_half_made_is_half_its_length_away():
    halfway = {name: (START[name] + END[name]) / 2 for name in END}
    assert worst(halfway).relative == pytest.approx(0.5)


def test_an_update_that_was_not_made_in_one_small_array_is_found_and_named():
    found = worst({**END, "a.bias": START["a.bias"]})
    assert (found.name, found.relative) == ("a.bias", pytest.approx(1.0))
    assert found.excess > 1


def test_a_rate_that_is_ten_percent_off_is_found_in_every_array():
    faster = {name: START[name] + 1.1 * (END[name] - START[name]) for name in END}
    assert all(each.excess > 1 for each in distances(START, faster, RIGHT, "fp32"))


def test_a_bias_that_is_short_by_chance_is_held_against_its_usual_length():
    """Of two classes its three steps may cancel, and rounding, which does not, is then a large part of it."""
    usual = replace(RIGHT, end={**END, "a.bias": np.array([0.02, -0.02, 0.0])})
    short = replace(RIGHT, end={**END, "a.bias": np.array([1e-5, -1e-5, 0.0])})
    seen = {**END, "a.bias": np.array([5e-5, -5e-5, 0.0])}
    _, with_usual, _ = with_usual_lengths([usual, short, usual])

    assert worst(seen, short).relative == pytest.approx(4.0)
    assert worst(seen, short).excess > 1
    assert worst(seen, with_usual).excess < 1
    assert worst({**END, "a.bias": np.array([1e-3, 0.0, 0.0])}, with_usual).excess > 1


def test_a_bias_of_samples_is_held_against_their_number_where_it_is_short_in_every_round():
    short = replace(RIGHT, end={**END, "a.bias": np.array([1e-5, -1e-5, 0.0])})
    seen = {**END, "a.bias": np.array([5e-5, -5e-5, 0.0])}
    by_median, by_samples = (with_usual_lengths([short] * 3, inputs)[0] for inputs in ({}, {"a.weight": 64}))

    assert worst(seen, by_median).excess > 1
    assert worst(seen, by_samples).excess < 1
    assert worst({**END, "a.bias": np.array([5e-3, 0.0, 0.0])}, by_samples).excess > 1


@pytest.mark.parametrize(
    ("workload", "found"), [(one_layer((1, 4, 4), 2), {"fc.weight": 16}), (build_workload("lenet5"), {})]
)
def test_only_a_layer_that_is_alone_takes_samples_as_they_are(workload, found):
    assert samples_into(workload) == found


def test_what_rounding_does_is_allowed():
    rounded = {name: END[name] + 4e-6 for name in END}
    assert worst(rounded).excess < 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_no_number_is_infinitely_far(value):
    assert worst({**END, "a.bias": np.array([value, 0.0, 0.0])}).excess == math.inf


def test_missing_weights_are_named():
    with pytest.raises(ValueError, match=r"missing: \['a.bias'\]"):
        worst({"a.weight": END["a.weight"]})


def test_a_wrong_size_is_named():
    with pytest.raises(ValueError, match=r"a\.bias has 2 values, not 3"):
        worst({**END, "a.bias": np.zeros(2)})


@pytest.mark.parametrize("size", [LENGTH + 1, 10_000, 2_000_003])
def test_the_distance_of_sketches_is_that_of_the_arrays(size):
    stream = np.random.default_rng(size)
    first = stream.standard_normal(size).astype(np.float32)
    second = first + stream.standard_normal(size).astype(np.float32) * 1e-3
    sketcher = Sketcher()
    apart = sketcher.sketch({"a": first})["a"] - sketcher.sketch({"a": second})["a"]
    assert np.linalg.norm(apart) == pytest.approx(np.linalg.norm(first - second), rel=0.25)


def test_a_small_array_is_its_own_sketch():
    array = np.arange(6.0).reshape(2, 3)
    assert Sketcher().sketch({"a": array})["a"].tolist() == [0, 1, 2, 3, 4, 5]


def test_sketches_of_two_processes_have_the_same_signs():
    array = np.random.default_rng(0).standard_normal(5000)
    assert np.array_equal(Sketcher().sketch({"a": array})["a"], Sketcher().sketch({"a": array})["a"])


def test_one_changed_value_of_many_is_in_the_sketch():
    array = np.zeros(100_000)
    array[77_777] = 1.0
    assert np.linalg.norm(Sketcher().sketch({"a": array})["a"]) == 1.0


@pytest.mark.parametrize("steps", [1, 2, 5, 19, 40])
def test_rounds_have_all_steps_and_the_first_has_one(steps):
    rounds = rounds_of(steps)
    assert sum(rounds) == steps
    assert rounds[0] == 1


def test_eighteen_rounds_are_in_two_launches_of_the_default():
    assert 2 * len(rounds_of(19)) >= 18


def test_a_rate_that_is_ten_percent_off_is_found_below_the_rounding_of_bf16():
    stream = np.random.default_rng(3)
    start, update = np.zeros(200), stream.standard_normal(200)
    noise = 0.06 * stream.standard_normal(200)
    right = Round(1, {"a": start}, {"a": update}, {"a": float(np.linalg.norm(noise))}, 1.0, 0.0)
    faster = {"a": 1.1 * update + noise}

    assert worst(faster, right, "bf16").excess < 1
    assert wrong_slope(right.start, faster, right, "bf16") == pytest.approx(1.1, abs=0.03)
    assert wrong_slope(right.start, {"a": update + noise}, right, "bf16") is None


def away(number: int, share: float) -> Distance:
    """Return an array whose update is ``share`` of its length away from the right one."""
    return Distance(
        f"array{number}",
        share,
        allowed=0.01,
        allowed_for_few=0.03,
        allowed_for_rounding=1e-5,
        update=1.0,
        scale=1.0,
        unit=1e-6,
    )


class TestFewArraysOfManyMayBeFurtherAway:
    """One activation at zero to the last digit shows in some arrays of a large network."""

    def test_five_of_a_hundred(self):
        assert worst_fault([away(n, 0.02 if n < 5 else 0.001) for n in range(100)]) is None

    def test_not_six(self):
        assert worst_fault([away(n, 0.02 if n < 6 else 0.001) for n in range(100)]).relative == 0.02

    def test_not_by_more_than_three_times(self):
        assert worst_fault([away(n, 0.04 if n == 7 else 0.001) for n in range(100)]).name == "array7"

    def test_none_of_a_small_network(self):
        assert worst_fault([away(n, 0.02 if n == 0 else 0.001) for n in range(19)]).name == "array0"

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_none_that_is_no_number(self, value):
        assert worst_fault([away(n, value if n == 0 else 0.001) for n in range(100)]).name == "array0"


@pytest.mark.parametrize(("rate", "found"), [(1.0, None), (1.02, 1.02), (0.98, 0.98)])
def test_rounding_that_makes_all_arrays_of_a_deep_network_longer_is_no_wrong_rate(rate, found):
    """As measured of GoogLeNet at 64x64: from a thousandth at the loss to a fifth of the first layers' gradients."""
    rng = np.random.default_rng(6)
    shares = np.geomspace(1e-4, 0.2, 30)
    updates = {f"{place}": rng.normal(size=500) for place in range(30)}
    start = {name: np.zeros(500) for name in updates}
    units = {
        name: share * float(np.linalg.norm(update))
        for share, (name, update) in zip(shares, updates.items(), strict=True)
    }
    right = Round(1, start, updates, units, 1.0, 0.0)
    end = {name: rate * (1.0 + share) * update for share, (name, update) in zip(shares, updates.items(), strict=True)}

    slope = wrong_slope(start, end, right, "fp32")

    assert slope is None if found is None else slope == pytest.approx(found, abs=0.005)
