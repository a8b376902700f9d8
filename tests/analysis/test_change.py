"""A comparison of two sides: who is paired with whom, what is claimed, and what would have been shown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from simulated import a_failure, a_launch, a_store, a_trial

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.counterparts import pair
from steptime.analysis.compared.sides import side_of
from steptime.errors import UsageError
from steptime.statistics.comparison import compare, launches_to_show, power_to_show, smallest_change
from steptime.statistics.launch_times import reduce_times, sessions_of

SPREAD = 0.02
START = datetime(2026, 1, 1, tzinfo=UTC)


def filled(folder, trials, *, slower=1.0, launches=4, seed=0, pause_h=24, **changes):  # noqa: PLR0913 - of a folder
    """Return a results folder whose launches, some hours apart, spread by 2 % around 0.1 s times ``slower``."""
    rng, store = np.random.default_rng(seed), a_store(folder)
    for trial in trials:
        store.add_trial(trial)
        for number in range(launches):
            seconds = 0.1 * slower * float(np.exp(rng.normal(0.0, SPREAD)))
            moment = (START + timedelta(hours=pause_h * number, minutes=number)).isoformat()
            store.append(a_launch(trial, number, [seconds] * 10, started_at=moment, **changes))
    return store


def sides(tmp_path, first, second, **changes):
    """Return the sides of two folders of trials, the second ``changes`` from the first."""
    return (
        side_of(filled(tmp_path / "a", first), "a"),
        side_of(filled(tmp_path / "b", second, seed=1, **changes), "b"),
    )


def test_a_slower_side_is_called_slower_and_fails_over_a_threshold_below_its_interval(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()], slower=1.3)

    found = change_between(first, second, 0.05)

    (trial,) = found.trials
    assert trial.verdict == "slower"
    assert trial.gate_low > 1.05
    assert trial.fails
    assert found.fails


def test_a_slowdown_that_only_the_narrower_interval_shows_fails_nothing(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()], slower=1.3)
    ratio, gate = ((each := change_between(first, second, 0.0).trials[0]).ratio.low, each.gate_low)

    (trial,) = change_between(first, second, 0.5 * (ratio + gate) - 1.0).trials

    assert gate < ratio
    assert trial.verdict == "slower"
    assert not trial.fails


def test_a_slowdown_whose_interval_reaches_below_the_threshold_fails_nothing(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()], slower=1.3)

    found = change_between(first, second, 0.3)

    assert found.trials[0].verdict == "slower"
    assert not found.fails


def test_a_faster_side_fails_nothing(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()], slower=0.7)

    found = change_between(first, second, 0.0)

    assert found.trials[0].verdict == "faster"
    assert not found.fails


def test_equal_sides_have_no_difference_and_name_the_smallest_change(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()])

    (trial,) = change_between(first, second).trials

    assert trial.verdict == "no difference"
    assert 0.02 < trial.smallest_change < 0.3


def test_single_launches_decide_nothing(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()], slower=2.0, launches=1)
    alone = replace(first, subjects=[replace(each, launches=each.launches[:1]) for each in first.subjects])

    found = change_between(replace(alone, company=alone.subjects), second, 0.05)

    assert [each.verdict for each in found.trials] == ["undecided"]
    assert found.trials[0].smallest_change is None
    assert not found.fails


@pytest.mark.parametrize("slower", [0.4, 1.0, 2.13])
@pytest.mark.parametrize("launches", [2, 3, 5])
def test_two_sessions_that_took_no_turns_decide_nothing(tmp_path, launches, slower):
    first, second = (
        side_of(filled(tmp_path / name, [a_trial()], slower=factor, launches=launches, seed=seed, pause_h=0), name)
        for seed, (name, factor) in enumerate((("a", 1.0), ("b", slower)))
    )

    (trial,) = change_between(first, second).trials

    assert (trial.verdict, trial.sessions, trial.smallest_change) == ("undecided", (1, 1), None)


def in_sessions(rng, sessions, count):
    """Return launches that differ by 1 % within a session and by 3 % between sessions, a day apart."""
    return [
        replace(
            reduce_times([np.exp([centre + rng.normal(0.0, 0.01)])])[0],
            started_at=(START + timedelta(days=day, minutes=minute)).isoformat(),
        )
        for day, centre in enumerate(rng.normal(0.0, 0.03, sessions))
        for minute in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_sides_without_turns_differ_by_chance_as_often_as_their_sessions_say(count):
    """Of 300 comparisons with itself of a side with four sessions before; 19 to 45 % by launches."""
    rng, called = np.random.default_rng(count), 0
    for _ in range(300):
        before, later = sessions_of(in_sessions(rng, 4, count)), sessions_of(in_sessions(rng, 1, count), 4)
        called += not compare(later, before).tied

    assert called <= 0.05 * 300 + 3 * np.sqrt(0.0475 * 300)


def test_a_history_of_sessions_finds_what_is_larger_than_they_differ(tmp_path):
    first = side_of(filled(tmp_path / "a", [a_trial()], launches=5), "a")
    second = side_of(filled(tmp_path / "b", [a_trial()], slower=1.5, launches=5, seed=1, pause_h=0), "b")

    (trial,) = change_between(first, second).trials

    assert trial.sessions == (5, 1)
    assert trial.verdict == "slower"


def test_launches_of_two_folders_are_never_paired_by_their_blocks(tmp_path):
    first, second = sides(tmp_path, [a_trial()], [a_trial()])

    found = change_between(first, second)

    assert not found.interleaved
    assert found.trials[0].interleaved == 0
    assert any("and a launch of each did not follow by turns: the machine may" in note for note in found.notes)


def test_sides_of_one_folder_are_compared_within_its_blocks(tmp_path):
    side = side_of(filled(tmp_path / "a", [a_trial(), a_trial(framework="pytorch")]), "a", "framework")

    found = change_between(side.where("framework", "reference"), side.where("framework", "pytorch"))

    assert found.interleaved
    assert found.trials[0].interleaved == 4


def test_a_trial_without_counterpart_names_the_nearest(tmp_path):
    first, second = sides(tmp_path, [a_trial(), a_trial(batch_per_worker=16)], [a_trial()])

    (alone,) = pair(first, second).unpaired

    assert alone.side == "first"
    assert alone.reason == "b has no such trial; the nearest has batch_per_worker 8, not 16"


def test_an_option_that_one_version_alone_knows_does_not_part_a_pair(tmp_path):
    old, new = (
        a_trial(framework="pytorch", options=options) for options in ({"bucket_mb": 25}, {"bucket_mb": 25, "x": 1})
    )
    first, second = sides(tmp_path, [old], [new])

    assert [(one.id, other.id) for one, other in pair(first, second).pairs] == [(old.id, new.id)]


def test_another_value_of_an_option_parts_a_pair(tmp_path):
    old, new = (a_trial(framework="pytorch", options={"bucket_mb": size}) for size in (25, 5))

    with pytest.raises(UsageError, match="bucket_mb 5, not 25"):
        change_between(*sides(tmp_path, [old], [new]))


def test_a_trial_that_only_the_second_side_failed_to_measure_is_broken(tmp_path):
    trial, other = a_trial(), a_trial(batch_per_worker=16)
    first = side_of(filled(tmp_path / "a", [trial, other]), "a")
    store = filled(tmp_path / "b", [other])
    store.add_trial(trial)
    store.append(a_failure(trial))

    found = change_between(first, side_of(store, "b"))

    assert [(each.trial, each.broken) for each in found.unpaired] == [(trial.id, True)]
    assert "ValueError: no" in found.unpaired[0].reason


def test_software_and_hardware_are_listed_apart_and_neither_is_blamed(tmp_path):
    first, second = (filled(tmp_path / name, [a_trial()], seed=seed) for seed, name in enumerate("ab"))
    for store, cpu in ((first, "old"), (second, "new")):
        store.set_machine({"cpu": cpu, "kernel": "6.1"})
    other = side_of(second, "b")
    renewed = [replace(each, software={**each.software, "library numpy": "2.0"}) for each in other.subjects]

    found = change_between(side_of(first, "a"), replace(other, subjects=renewed))

    assert [(each.fact, each.first, each.second) for each in found.software] == [("library numpy", None, "2.0")]
    assert [(each.fact, each.first, each.second) for each in found.hardware] == [("cpu", "old", "new")]
    assert any("cannot show which" in note for note in found.notes)


def test_launches_of_two_versions_in_one_trial_are_two_sides(tmp_path):
    store = filled(tmp_path / "a", [a_trial()], launches=3, steptime="1.0")
    for number in range(3, 6):
        store.append(a_launch(a_trial(), number, [0.2] * 10, steptime="1.1"))
    side = side_of(store, "a", "steptime")

    found = change_between(side.where("steptime", "1.0"), side.where("steptime", "1.1"))

    assert found.trials[0].launches == (3, 3)
    assert found.trials[0].ratio.value == pytest.approx(2.0, rel=0.1)


def test_claims_about_many_pairs_have_wider_intervals_than_one(tmp_path):
    trials = [a_trial(batch_per_worker=size) for size in (8, 16, 32, 64)]
    first, second = sides(tmp_path, trials, trials)
    alone = (replace(each, subjects=each.subjects[:1]) for each in (first, second))

    several, one = change_between(first, second).trials[0], change_between(*alone).trials[0]

    assert several.first == one.first
    assert several.ratio.high / several.ratio.low > one.ratio.high / one.ratio.low


def test_the_mean_of_all_pairs_is_their_geometric_mean(tmp_path):
    trials = [a_trial(batch_per_worker=size) for size in (8, 16, 32, 64)]

    found = change_between(*sides(tmp_path, trials, trials, slower=1.05))

    assert found.overall.value == pytest.approx(np.exp(np.mean([np.log(each.ratio.value) for each in found.trials])))
    assert found.overall.low < 1.05 < found.overall.high


def simulated(rng, launches, change):
    """Compare two trials of two folders whose launches spread by 2 %."""
    first, second = (
        reduce_times([np.exp([each]) for each in rng.normal(shift, SPREAD, launches)], blocks)
        for shift, blocks in ((0.0, range(launches)), (np.log1p(change), range(100, 100 + launches)))
    )
    return compare(second, first)


@pytest.mark.parametrize("launches", [3, 5, 10])
def test_the_promised_power_is_the_share_of_changes_that_are_shown(launches):
    """The promise is an average over comparisons, each of which knows its own spread only."""
    rng = np.random.default_rng(1)
    found = [simulated(rng, launches, 0.05) for _ in range(1000)]

    shown = np.mean([each.low > 1.0 for each in found])
    promised = np.mean([power_to_show(each, 0.05) for each in found])

    assert promised == pytest.approx(shown, abs=0.06)


@pytest.mark.parametrize("launches", [3, 5, 10])
def test_new_launches_show_more_than_four_of_five_changes_as_large_as_the_smallest(launches):
    """The change is a multiple of the error that the first launches have by luck; 600 leave 1.6 points.

    Of normal noise it is more, so that it is as many over other shapes (benchmarks/core/noise-shapes.csv).
    """
    rng = np.random.default_rng(1)
    promised = [smallest_change(simulated(rng, launches, 0.0)) for _ in range(600)]

    shown = np.mean([simulated(rng, launches, each).low > 1.0 for each in promised])

    assert shown == pytest.approx(0.86, abs=0.05)


def test_more_launches_until_a_change_is_shown_suffice():
    comparison = replace(simulated(np.random.default_rng(1), 5, 0.0), spread=SPREAD * np.sqrt(2.0))
    more = launches_to_show(comparison, 0.02)
    rng = np.random.default_rng(2)

    shown = np.mean([simulated(rng, 5 + more, 0.02).low > 1.0 for _ in range(300)])

    assert more > 0
    assert launches_to_show(comparison, 1.0) == 0
    assert shown == pytest.approx(0.8, abs=0.07)


def drifting(rng, launches, sessions):
    """Return the logarithms of launches of some sessions on a machine whose speed wanders by 5 % within hours."""
    wander, found = 0.0, []
    for _ in range(sessions):
        session = []
        for _ in range(launches):
            wander = 0.8 * wander + 0.6 * rng.normal(0.0, 0.05)
            session.append(wander + rng.normal(0.0, 0.005))
        found.append(session)
        wander = rng.normal(0.0, 0.05)  # hours pass
    return found


def test_a_drift_between_two_sessions_is_rarely_called_a_change():
    """Of 300 comparisons of a machine with itself; intervals that took launches for independent called 40 % changed."""
    rng, called = np.random.default_rng(1), {True: 0, False: 0}
    for _ in range(300):
        first, second = (
            reduce_times([np.exp([each]) for each in logs], range(start, start + 5))
            for start, logs in zip((0, 100), drifting(rng, 5, 2), strict=True)
        )
        for apart in called:
            called[apart] += not compare(second, first, apart=apart).tied

    assert called[True] <= 0.1 * 300
    assert called[False] >= 0.2 * 300


def test_more_launches_of_a_session_hardly_narrow_a_comparison_of_two(tmp_path):
    few, many = (
        change_between(
            side_of(filled(tmp_path / f"a{launches}", [a_trial()], launches=launches, pause_h=0), "a"),
            side_of(filled(tmp_path / f"b{launches}", [a_trial()], launches=launches, seed=1, pause_h=0), "b"),
            0.05,
        ).trials[0]
        for launches in (10, 40)
    )

    assert few.launches_to_threshold is None
    assert np.log(many.ratio.high / many.ratio.low) > 0.7 * np.log(few.ratio.high / few.ratio.low)
