"""Quantiles of steps, and stalls with their period."""

import random

import pytest
from stored_processes import BEGIN, MS, ddp_job, found_in, process_lines, sentences_of, step, write

STALL_MS = 1000.0


def stalls_at(numbers):
    return lambda number: [STALL_MS * (number in numbers)] * 2


def test_quantiles_of_equal_steps_are_the_step(tmp_path):
    spread = ddp_job(tmp_path, lambda _: [0.0, 0.0], steps=150).spread
    assert (spread.median_s, spread.p90_s, spread.p99_s) == pytest.approx((0.040, 0.040, 0.040))


def test_the_longest_step_is_named_by_its_number(tmp_path):
    spread = ddp_job(tmp_path, stalls_at({77}), steps=150).spread
    assert (spread.longest_step, spread.longest_s) == (77, pytest.approx(1.040))


@pytest.mark.parametrize(("steps", "known"), [(9, (False, False)), (60, (True, False)), (150, (True, True))])
def test_a_quantile_of_too_few_steps_is_null(tmp_path, steps, known):
    spread = ddp_job(tmp_path, lambda _: [0.0, 0.0], steps=steps).spread
    assert (spread.p90_s is not None, spread.p99_s is not None) == known


@pytest.mark.parametrize("every", [10, 12, 25])
def test_regular_stalls_are_named_with_their_period(tmp_path, every):
    run = ddp_job(tmp_path, stalls_at(set(range(every, 150, every))), steps=150)
    assert run.spread.stalls.every == pytest.approx(every)
    assert f"one in {every}," in sentences_of(run)["stalls"]


@pytest.mark.parametrize("noisy", [{55}, {3, 77}, {13, 52, 93}], ids=["one", "two", "beside the regular ones"])
def test_shorter_stalls_between_them_do_not_hide_the_period_of_regular_ones(tmp_path, noisy):
    regular = set(range(10, 150, 10))
    run = ddp_job(tmp_path, lambda number: [STALL_MS * (number in regular) + 120.0 * (number in noisy)] * 2, steps=150)
    assert (run.spread.stalls.every, run.spread.stalls.count) == (10, len(regular))


def test_irregular_stalls_have_no_period(tmp_path):
    run = ddp_job(tmp_path, stalls_at(set(random.Random(3).sample(range(5, 150), 8))), steps=150)
    assert run.spread.stalls.every is None
    assert "at no regular distance" in sentences_of(run)["stalls"]


def test_the_share_of_stalls_is_of_the_time_of_steps(tmp_path):
    stalls = ddp_job(tmp_path, stalls_at(set(range(12, 150, 12))), steps=150).spread.stalls
    assert stalls.share == pytest.approx(1.04 * stalls.count / (1.0 * stalls.count + 0.04 * stalls.steps), rel=0.01)


@pytest.mark.parametrize(
    "late",
    [lambda _: [0.0, 0.0], lambda number: [STALL_MS * (number == 50)] * 2, lambda number: [30.0 * (number % 2)] * 2],
    ids=["none", "a single one", "two kinds of steps"],
)
def test_other_runs_have_no_stalls(tmp_path, late):
    assert ddp_job(tmp_path, late, steps=150).spread.stalls is None


def ranks_stalled(folder, stalled, ranks=2, steps=150):
    """Return the stalls where ranks take 1 s more behind their exchange, for which the others wait in the next step.

    ``stalled`` is rank by step.
    """
    processes = []
    for rank in range(ranks):
        found, begin = [], BEGIN
        for number in range(steps):
            waits = number - 1 in stalled and stalled[number - 1] != rank
            update = 3.0 + 1000.0 * (stalled.get(number) == rank)
            regions = {"input": 20.0, "forward": 5.0, "backward": 12.0 + 1000.0 * waits, "update": update}
            at = begin + 25 * MS
            passes = [[at, at + 8 * MS, begin + round(sum(regions.values()) - update) * MS, True]]
            found.append(step(number, begin, regions, backwards=passes))
            begin += found[-1]["duration_ns"]
        processes.append(process_lines(rank, ranks, found))
    return found_in(write(folder, *processes), 60_000.0).spread.stalls


@pytest.mark.parametrize(
    ("stalled", "ranks"),
    [
        ({number: number // 12 % 2 for number in range(10, 150, 12)}, 2),
        (dict.fromkeys(range(10, 150, 12), 0), 2),
        ({number: number % 3 for number in range(10, 150, 12)}, 3),
        ({number: number // 20 % 2 for number in range(20, 140, 20)} | {81: 1}, 2),
    ],
    ids=["in turn", "one rank", "three ranks", "one behind the other"],
)
def test_a_stall_for_which_others_wait_in_the_next_step_counts_once(tmp_path, stalled, ranks):
    stalls = ranks_stalled(tmp_path, stalled, ranks)
    assert stalls.count == len(stalled)
    assert stalls.lost_s == pytest.approx(1.0 * len(stalled), rel=0.01)
    assert stalls.shortest_s == pytest.approx(1.04 if 81 not in stalled else 0.54, rel=0.01)
