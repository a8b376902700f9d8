"""How workers agree on the number of timed steps."""

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.worker.process_context import ProcessContext
from steptime.worker.timing import agree_on_step_count

SCHEDULE = {"seconds": 1.0, "min_steps": 10, "max_steps": 500}


def context_of(folder: Path, rank: int) -> ProcessContext:
    return ProcessContext({"STEPTIME_RANK": str(rank)}, str(folder))


def ends(gap_s: float, count: int = 5) -> list[float]:
    return [100.0 + gap_s * index for index in range(count)]


def test_worker_0_aims_for_the_seconds_asked_for(tmp_path):
    assert agree_on_step_count(context_of(tmp_path, 0), ends(0.01), SCHEDULE) == pytest.approx(100, abs=1)


def test_one_slow_step_of_the_warm_up_does_not_shorten_the_timing(tmp_path):
    late = [ends(0.01)[0] - 30.0, *ends(0.01)]
    assert agree_on_step_count(context_of(tmp_path, 0), late, SCHEDULE) == pytest.approx(100, abs=1)


@given(gaps=st.lists(st.floats(0.0, 1e3), max_size=8), seconds=st.floats(0.0, 1e4))
def test_whatever_the_warm_up_was_the_number_stays_within_its_bounds(tmp_path_factory, gaps, seconds):
    moments = [sum(gaps[:count]) for count in range(len(gaps))]
    folder = tmp_path_factory.mktemp("step_count")
    steps = agree_on_step_count(context_of(folder, 0), moments, {**SCHEDULE, "seconds": seconds})
    assert SCHEDULE["min_steps"] <= steps <= SCHEDULE["max_steps"]


@pytest.mark.parametrize("moments", [[], [1.0]])
def test_a_warm_up_too_short_to_tell_gives_the_fewest_steps(tmp_path, moments):
    assert agree_on_step_count(context_of(tmp_path, 0), moments, SCHEDULE) == SCHEDULE["min_steps"]


def test_other_workers_take_the_number_of_worker_0_whatever_they_saw(tmp_path):
    threading.Timer(0.1, agree_on_step_count, (context_of(tmp_path, 0), ends(0.01), SCHEDULE)).start()
    told = agree_on_step_count(context_of(tmp_path, 1), ends(0.2), {**SCHEDULE, "agree_timeout_s": 20.0})
    assert told == json.loads((tmp_path / "step_count.json").read_text())["steps"]
    assert told > 5  # the five steps of its own that would fit


def test_a_worker_that_is_told_nothing_gives_up_and_says_who_was_silent(tmp_path):
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"worker 0 did not announce .*step_count\.json"):
        agree_on_step_count(context_of(tmp_path, 1), ends(0.01), {**SCHEDULE, "agree_timeout_s": 0.1})
    assert 0.1 <= time.monotonic() - started < 5.0


def test_the_number_appears_whole_or_not_at_all(tmp_path):
    agree_on_step_count(context_of(tmp_path, 0), ends(0.01), SCHEDULE)
    assert [path.name for path in tmp_path.iterdir()] == ["step_count.json"]
