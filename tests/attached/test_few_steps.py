"""A part that lies in few steps is told by these, however long the steps are beside it and whatever noise there is."""

import re

import numpy as np
import pytest
from stored_processes import BEGIN, MS, found_in, part_of, process_lines, sentences_of, step, write

from steptime.attached.few_steps import few_steps, regular_distance
from steptime.attached.sampled_lines import most_seen_line
from steptime.diagnosis.rules import script_findings
from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import SampledLines

STEPS, LONG_MS = 100, 100.0
PLACES = ["input", "forward", "update", "forward>backward"]


def a_run(folder, place, has, base_ms=15.0, **more):
    """A run of ranks whose steps take ``long_ms`` more at a place where ``has`` holds, behind others' noise.

    Of ``noise_ms`` on average, which is exponential as what takes the processor away is.
    """
    noise_ms, long_ms = more.get("noise_ms", 1.0), more.get("long_ms", LONG_MS)
    world, only, lines = more.get("world", 1), more.get("only"), more.get("lines", ())
    drawn = np.random.default_rng(7)
    noises = drawn.exponential(noise_ms, (world, STEPS))
    processes = []
    for rank in range(world):
        found, begin = [], BEGIN
        for number in range(STEPS):
            regions = {"input": 0.4, "forward": base_ms, "backward": base_ms, "update": 0.5}
            gaps = {"forward>backward": 0.2}
            own = gaps if ">" in place else regions
            own[place] += noises[rank][number] + long_ms * (has(number) and only in {None, rank})
            found.append(step(number, begin, regions, gaps))
            begin += found[-1]["duration_ns"]
        processes.append(process_lines(rank, world, found, lines=list(lines)))
    return found_in(write(folder, *processes), 60_000.0)


def of_few(run):
    return next(each.sentence for each in run.findings if " steps, one in " in each.sentence)


@pytest.mark.parametrize("base_ms", [5.0, 30.0, 60.0], ids=["short steps", "like those", "long steps"])
@pytest.mark.parametrize("place", PLACES)
def test_what_comes_in_every_fifth_step_is_told_so(tmp_path, place, base_ms):
    sentence = of_few(a_run(tmp_path, place, lambda number: number % 5 == 0, 2.0 if place == "forward" else base_ms))
    found = re.match(r"(\d+) of (\d+) steps, one in 5, (?:wait|spend) (\d+) ms \((\d+) ms to (\d+) ms\)", sentence)
    assert found, sentence
    count, steps, value, low, high = map(int, found.groups())
    assert count == pytest.approx(steps / 5, abs=1)
    assert 99 <= low <= value <= high <= 112


@pytest.mark.parametrize("every", [2, 3, 7, 12, 20])
def test_its_period_is_that_of_the_part(tmp_path, every):
    few = part_of(a_run(tmp_path, "input", lambda number: number % every == 0), "input_wait").few
    assert few.every == pytest.approx(every)


@pytest.mark.parametrize("noise_ms", [0.1, 3.0, 12.0])
def test_noise_does_not_hide_it(tmp_path, noise_ms):
    few = part_of(a_run(tmp_path, "input", lambda number: number % 5 == 0, noise_ms=noise_ms), "input_wait").few
    assert few.every == pytest.approx(5)
    assert 0.1 <= few.each_s.value <= 0.101 + 2 * noise_ms / 1000
    assert few.others_s < 0.02


def test_a_single_exception_does_not_hide_it(tmp_path):
    run = a_run(tmp_path, "input", lambda number: 50 if number == 42 else int(number % 5 == 0))
    assert part_of(run, "input_wait").few.every == pytest.approx(5)


@pytest.mark.parametrize("more_ms", [30.0, 45.0, 100.0])
def test_it_is_shown_at_twice_a_step_and_less(tmp_path, more_ms):
    run = a_run(tmp_path, "input", lambda number: number % 5 == 0, base_ms=20.0, long_ms=more_ms, noise_ms=0.1)
    assert run.spread.stalls is None or more_ms > 50.0
    assert "one in 5" in sentences_of(run)["input"]


def test_the_same_steps_are_no_second_finding(tmp_path):
    run = a_run(tmp_path, "input", lambda number: number % 10 == 0, base_ms=2.0)
    assert run.spread.stalls is not None
    assert "stalls" not in sentences_of(run)


def test_what_comes_at_no_regular_distance_is_told_so(tmp_path):
    has = set(np.random.default_rng(3).choice(STEPS, 12, replace=False).tolist())
    run = a_run(tmp_path, "input", lambda number: number in has)
    assert "steps, at no regular distance, wait" in sentences_of(run)["input"]


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_comes_at_no_regular_distance(seed):
    drawn = np.random.default_rng(seed).exponential(1.0, (2, 60))
    few = few_steps(range(60), drawn, float(drawn.mean(axis=0).sum()))
    assert few is None or not few.regular


def test_what_each_step_waits_alike_is_told_of_each(tmp_path):
    run = a_run(tmp_path, "input", lambda _: True)
    assert part_of(run, "input_wait").few is None
    assert sentences_of(run)["input"].startswith("each step waits 10")


@pytest.mark.parametrize("left_out", [(), (10,), (11, 12), (20, 45)])
def test_steps_that_are_left_out_do_not_hide_a_period(left_out):
    numbers = np.array([number for number in range(60) if number not in left_out])
    assert regular_distance(numbers[numbers % 5 == 0], numbers) == pytest.approx(5)


def test_the_interval_of_its_mean_is_of_what_it_takes_in_these_steps(tmp_path):
    part = part_of(a_run(tmp_path, "input", lambda number: number % 5 == 0), "input_wait")
    true_s = LONG_MS / 5000 + 0.0014
    assert part.time_s.low <= true_s <= part.time_s.high
    assert part.time_s.high - part.time_s.low < 0.1 * true_s


def test_a_part_of_one_rank_alone_is_told_of_that_one(tmp_path):
    run = a_run(tmp_path, "input", lambda number: number % 5 == 0, world=4, only=2)
    assert re.search(r"wait 10\d ms \(.*\) on the rank that it takes longest", sentences_of(run)["input"])


def samples(first, last, **counts):
    places = {"input": {line.replace("__", " ", 1): number for line, number in counts.items()}}
    return {"kind": "lines", "every_ns": MS, "first": first, "last": last, "places": places}


def test_the_line_is_of_samples_in_those_steps(tmp_path):
    lines = [samples(6, 8, **{"a.py:9 other": 90}), samples(10, 10, **{"a.py:19 open_next_shard": 10})]
    run = a_run(tmp_path, "input", lambda number: number % 5 == 0, lines=lines)
    assert "for their input (a.py:19 open_next_shard); the others" in sentences_of(run)["input"]
    assert next(each for each in script_findings(run) if each.rule == "own_input").change.count("open_next_shard") == 1


def test_no_line_is_named_where_no_sample_is_of_those_steps(tmp_path):
    lines = [samples(11, 12, **{"a.py:36 main, torch: __call__": 90})]
    run = a_run(tmp_path, "input", lambda number: number % 5 == 0, lines=lines)
    assert "a.py" not in sentences_of(run)["input"]


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"a.py:36 main, torch: __call__": 60, "a.py:19 open_next_shard": 40}, "a.py:19 open_next_shard"),
        ({"a.py:36 main, torch: __next__": 60, "a.py:17 __iter__, numpy: load": 40}, "a.py:17 __iter__, numpy: load"),
        ({"a.py:36 main, torch: collate": 60, "a.py:19 open_next_shard": 40}, "a.py:36 main, torch: collate"),
        ({"a.py:36 main, torch: __call__": 99, "a.py:19 open_next_shard": 1}, "a.py:36 main, torch: __call__"),
        ({"a.py:36 main, torch: __call__": 9}, "a.py:36 main, torch: __call__"),
    ],
)
def test_a_line_that_shows_a_call_alone_gives_way_to_what_it_ran(counts, line):
    process = ProcessLines.__new__(ProcessLines)
    process.sampled = [SampledLines(every_ns=MS, places={"input": counts})]
    assert most_seen_line([process], ["input"]) == line
