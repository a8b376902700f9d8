"""A rank is named as the one that is waited for by the steps in which it comes last; no sentence contradicts itself."""

import random
import re

import pytest
from stored_processes import BEGIN, MS, ddp_job, ddp_steps, found_in, part_of, process_lines, sentences_of, step, write


def late_in(numbers, late_ms=80.0, others_ms=0.5):
    """Rank 1 is late in these steps, rank 0 a little in the others."""
    return lambda number: [0.0, late_ms] if number in numbers else [others_ms, 0.0]


def test_a_rank_that_is_last_in_17_of_20_steps_is_named(tmp_path):
    run = ddp_job(tmp_path, late_in(set(range(20)) - {3, 9, 14}), steps=20)
    assert run.waited_for.rank == 1
    assert "for rank 1; its forward takes" in sentences_of(run)["straggler"]


@pytest.mark.parametrize("steps", [8, 13, 20])
def test_a_rank_whose_lateness_varies_much_is_named_by_coming_last(tmp_path, steps):
    stream = random.Random(steps)
    late = [stream.expovariate(1 / 30.0) ** 2 / 30.0 for _ in range(steps)]
    run = ddp_job(tmp_path, lambda number: [0.0, late[number]], steps=steps)
    assert run.waited_for.rank == 1


def test_a_rank_that_is_last_in_three_of_20_steps_is_told_by_its_share_and_these_steps(tmp_path):
    run = ddp_job(tmp_path, late_in({3, 9, 14}, others_ms=0.01), steps=20)
    assert run.waited_for.rank is None
    sentence = sentences_of(run).get("waiting", "")
    assert "now for one of them" not in sentence
    assert (run.waited_for.most_causing, run.waited_for.last_in) == (1, 3)


def test_no_rank_is_named_where_chance_makes_them_late(tmp_path):
    for seed in range(20):
        stream = random.Random(seed)
        late = [[stream.gauss(10.0, 4.0) for _ in range(2)] for _ in range(20)]
        run = ddp_job(tmp_path / str(seed), lambda number, late=late: late[number], steps=20)
        assert run.waited_for.rank is None, seed


@pytest.mark.parametrize(("world", "steps"), [(2, 20), (2, 100), (3, 60), (8, 40)])
def test_ranks_that_are_alike_are_not_blamed_in_words(tmp_path, world, steps):
    """Some rank is last most often, and causes most; with two of them more than half."""
    for seed in range(6):
        stream = random.Random(seed)
        late = [[stream.gauss(20.0, 8.0) for _ in range(world)] for _ in range(steps)]
        run = ddp_job(tmp_path / str(seed), lambda number, late=late: late[number], world, steps=steps)
        sentence = sentences_of(run)["waiting"]
        assert not re.search(r"rank \d", sentence), sentence
        assert "no rank is last more often than chance" in sentence


def test_a_rank_that_is_last_more_often_and_causes_little_is_not_called_as_often_as_chance(tmp_path):
    sentence = sentences_of(ddp_job(tmp_path, late_in({3, 9, 14}, others_ms=0.01), steps=20)).get("waiting", "")
    assert "is last more often than chance" not in sentence


def test_few_steps_are_told_with_how_many_more_would_show_the_rank(tmp_path):
    late = late_in({0, 1, 3, 4, 6, 8, 9, 11}, late_ms=30.0, others_ms=30.0)
    run = ddp_job(tmp_path, late, steps=12)
    sentence = sentences_of(run)["waiting"]
    assert "rank 1" not in sentence
    assert "no rank is last more often than chance; about" in sentence
    assert f"about {run.waited_for.more_steps} more step" in sentence


def test_waiting_is_never_negative(tmp_path):
    run = ddp_job(tmp_path, late_in({5}), steps=16)
    for part in run.parts:
        assert part.time_s.low is None or part.time_s.low >= 0.0, part.name
    assert part_of(run, "sync_wait").time_s.low == 0.0
    assert "straggler" not in sentences_of(run)


def test_three_steps_are_told_with_how_many_more_are_needed(tmp_path):
    run = ddp_job(tmp_path, lambda _: [0.0, 80.0], steps=4)
    assert "3 steps show no interval: at least 5 more are needed" in run.notes


def test_a_straggler_comes_before_its_passes_without_gradient(tmp_path):
    processes = []
    for rank in range(2):
        steps = ddp_steps(rank, lambda _: [0.0, 60.0])
        for one in steps:
            passes = one["regions"]["forward"] - 5 * MS
            one["regions"] |= {"forward": 5 * MS, "nograd": passes + 10 * MS}
            one["regions"]["input"] -= 10 * MS
        processes.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *processes), 60_000.0)
    kinds = [finding.kind for finding in run.findings]
    assert kinds.index("straggler") + 1 == kinds.index("no_grad")
    assert "its no-grad passes take 60 ms longer than theirs" in sentences_of(run)["straggler"]


def test_a_straggler_comes_before_the_gap_that_makes_it_one(tmp_path):
    lines = []
    for rank in range(2):
        steps = ddp_steps(rank, lambda _: [0.0, 30.0], 40)
        for one in steps:
            extra = one["regions"]["forward"] - 5 * MS
            one["regions"]["forward"] -= extra
            one["gaps"] = {"forward>backward": extra + 25 * MS}
            one["duration_ns"] += 25 * MS
        lines.append(process_lines(rank, 2, steps))
    kinds = list(sentences_of(found_in(write(tmp_path, *lines))))
    assert kinds.index("straggler") + 1 == kinds.index("gaps")


def averaging_job(folder, late_ms, every=8, steps=64, first_ms=0.0):
    """Two ranks that average weights after every so many steps; ``late_ms`` of an exchange has how late each comes."""
    processes = []
    for rank in range(2):
        lines, begin = [], BEGIN
        for number in range(steps):
            regions, more = {"forward": 2.0, "backward": 3.0, "update": 1.0}, {}
            if number % every == every - 1:
                exchange = number // every
                late = late_ms(exchange)
                if exchange == 0:
                    late = [late[0] + first_ms, late[1]]
                wait = max(late) - late[rank] + 1.0
                at = begin + round((6.0 + late[rank]) * MS)
                regions |= {"forward": 2.0 + late[rank], "collective": wait}
                call = ["allreduce", 1000, at, at + round(wait * MS)]
                more = {"collectives": {"none:allreduce": [1, 1000, round(wait * MS)]}, "intervals": [call]}
            one = step(number, begin, regions, **more)
            begin += one["duration_ns"]
            lines.append(one)
        processes.append(process_lines(rank, 2, lines))
    return found_in(write(folder, *processes), 60_000.0)


def test_a_first_exchange_with_a_cost_of_its_own_names_no_rank(tmp_path):
    run = averaging_job(tmp_path, lambda exchange: [0.0, 6.0] if exchange % 2 else [6.0, 0.0], first_ms=470.0)
    assert run.waited_for.rank is None
    sentence = sentences_of(run)["waiting"]
    assert "lies in step 7 alone, the first in which they exchange; in the other steps, no rank" in sentence
    assert "58" not in sentence


def test_an_exchange_that_outweighs_others_later_on_is_not_called_the_first(tmp_path):
    run = averaging_job(tmp_path, lambda exchange: [0.0, 300.0] if exchange == 4 else [0.1, 0.0])
    assert sentences_of(run)["waiting"].endswith("lies in step 39 alone")
    assert "straggler" not in sentences_of(run)


def test_a_rank_that_is_late_to_every_rare_exchange_is_named_by_these(tmp_path):
    run = averaging_job(tmp_path, lambda _: [0.0, 40.0], steps=128)
    assert run.waited_for.rank == 1
    assert "of each step, in the 16 of 128 that exchange for rank 1" in sentences_of(run)["straggler"]


def test_a_rank_that_is_late_behind_a_costly_first_exchange_of_another_is_named(tmp_path):
    run = averaging_job(tmp_path, lambda _: [0.0, 20.0], steps=160, first_ms=900.0)
    assert run.waited_for.rank == 1
    assert "lies in step 7 alone, the first" in sentences_of(run)["straggler"]
