"""Processes are put together by attempt and rank, and their steps by number; what does not fit is refused."""

import pytest
from stored_processes import BEGIN, MS, ddp_steps, found_in, part_of, process_lines, sentences_of, step, write


def alike(_number):
    return [0.0, 0.0]


def shifted(steps, ms):
    """The same steps so many milliseconds later."""
    moved = []
    for each in steps:
        passes = [[time + ms * MS for time in one[:3]] + [one[3]] for one in each["backwards"]]
        moved.append({**each, "begin_ns": each["begin_ns"] + ms * MS, "backwards": passes})
    return moved


def test_processes_of_an_attempt_are_joined_by_rank(tmp_path):
    processes = [process_lines(rank, 2, ddp_steps(rank, alike)) for rank in (1, 0)]
    run = found_in(write(tmp_path, *processes))
    assert ([rank.rank for rank in run.ranks], run.attempts, run.world) == ([0, 1], 1, 2)


def test_a_restart_is_an_attempt_of_its_own(tmp_path):
    first = [process_lines(rank, 2, ddp_steps(rank, alike, steps=7), ended=False) for rank in range(2)]
    second = [process_lines(rank, 2, shifted(ddp_steps(rank, alike, steps=30), 9000), attempt=1) for rank in range(2)]
    run = found_in(write(tmp_path, *first, *second), 20_000.0)
    restart = next(part for part in run.job if part.name == "restart")
    assert (run.attempts, run.ranks[0].steps, restart.count) == (2, 30, 1)
    assert restart.time_s == pytest.approx(9.0 - 7 * 0.040)
    assert "restarted 1 time" in sentences_of(run)["restart"]


def test_trainings_one_after_the_other_are_not_one(tmp_path):
    first = process_lines(0, 1, ddp_steps(0, lambda _: [0.0], steps=20))
    second = process_lines(0, 1, shifted(ddp_steps(0, lambda _: [0.0], steps=30), 5000), pid=7)
    run = found_in(write(tmp_path, first, second))
    assert (run.attempts, run.ranks[0].steps) == (2, 30)


def test_trainings_side_by_side_are_not_one(tmp_path):
    processes = [process_lines(0, 1, ddp_steps(0, lambda _: [0.0], steps=steps)) for steps in (20, 30)]
    assert found_in(write(tmp_path, *processes)).attempts == 2


def test_a_rank_that_is_missing_is_named(tmp_path):
    run = found_in(write(tmp_path, process_lines(0, 4, ddp_steps(0, lambda _: [0.0] * 4))))
    assert part_of(run, "sync_wait").reason == "nothing is known of rank 1, 2, 3 of 4"


def test_different_numbers_of_steps_are_refused(tmp_path):
    late = shifted(ddp_steps(1, alike, steps=30), 100)
    processes = [process_lines(0, 2, ddp_steps(0, alike, steps=40)), process_lines(1, 2, late)]
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").reason == "ranks differ in their number of steps: rank 1 has 30, rank 0 40"


@pytest.mark.parametrize(
    ("counts", "late"), [((40, 30), 1), ((30, 40), 1), ((30, 33, 40), 0)], ids=["short", "long", "three ranks"]
)
def test_ranks_of_which_some_have_fewer_batches_wait_as_others_where_their_exchanges_meet(tmp_path, counts, late):
    """As DDP joins them (`Join`): who has ended goes on to take part in the exchange."""
    ranks = range(len(counts))
    processes = [
        process_lines(
            rank, len(counts), ddp_steps(rank, lambda _: [30.0 * (one == late) for one in ranks], steps=steps)
        )
        for rank, steps in enumerate(counts)
    ]
    run = found_in(write(tmp_path, *processes))
    assert run.waited_for.ranks == [late]
    assert run.waited_for.others_wait_s.value == pytest.approx(0.03)
    assert any("the parts are of steps that all have" in note for note in run.notes)


def test_different_numbers_of_steps_on_hosts_with_clocks_of_their_own_are_refused(tmp_path):
    processes = [
        process_lines(rank, 2, ddp_steps(rank, alike, steps=steps), boot=f"boot-{rank}")
        for rank, steps in ((0, 40), (1, 30))
    ]
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").reason == "ranks differ in their number of steps: rank 1 has 30, rank 0 40"


def test_the_last_step_of_a_killed_process_may_be_missing(tmp_path):
    processes = [
        process_lines(0, 2, ddp_steps(0, alike, steps=40)),
        process_lines(1, 2, ddp_steps(1, alike, steps=38), ended=False),
    ]
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").time_s.value == pytest.approx(0.0)
    assert [rank.ended for rank in run.ranks] == [True, False]


def test_different_micro_steps_of_a_step_are_refused(tmp_path):
    steps = ddp_steps(1, alike)
    steps[20]["micro_steps"] = 2
    run = found_in(write(tmp_path, process_lines(0, 2, ddp_steps(0, alike)), process_lines(1, 2, steps)))
    reason = part_of(run, "sync_wait").reason
    assert reason == "step 20 has different numbers of micro-steps: 1 on rank 0, 2 on rank 1"


def test_different_collectives_of_a_step_are_refused(tmp_path):
    steps = ddp_steps(1, alike)
    steps[20]["collectives"] = {"none:barrier": [1, 0, MS]}
    run = found_in(write(tmp_path, process_lines(0, 2, ddp_steps(0, alike)), process_lines(1, 2, steps)))
    assert part_of(run, "sync_wait").reason == "ranks run different collectives in step 20"


def test_a_rank_comes_from_the_launcher_where_the_framework_has_none(tmp_path):
    lines = process_lines(3, 1, [step(number, BEGIN + number * 40 * MS, {"call": 40.0}) for number in range(10)])
    assert [rank.rank for rank in found_in(write(tmp_path, lines)).ranks] == [3]
