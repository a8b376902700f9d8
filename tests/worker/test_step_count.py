"""How workers agree on the numbers of steps: of those that are timed, and of those that warm a device up."""

import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.worker.process_context import ProcessContext
from steptime.worker.timing import agree_on_step_count, more_warmup, run_timed

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
    assert 0.1 <= time.monotonic() - started < 60.0  # without its limit, ten minutes


def test_the_number_appears_whole_or_not_at_all(tmp_path):
    agree_on_step_count(context_of(tmp_path, 0), ends(0.01), SCHEDULE)
    assert [path.name for path in tmp_path.iterdir()] == ["step_count.json"]


WARM = {**SCHEDULE, "warmup_seconds": 5.0}


@pytest.mark.parametrize(
    ("gaps", "more"),
    [
        ([0.1] * 4, 47),  # 4.6 s are left
        ([9.0, 9.0], 2),  # of five steps
        ([], 4),
        ([0.01] * 100, 401),
        ([0.0001] * 10, 500),  # the most of the schedule
        ([0.2] * 30, 0),
        ([0.2] * 20 + [0.25] * 10, 10),  # clocks went down: half as long once more
    ],
)
def test_a_device_is_warm_after_five_steps_and_five_seconds_when_its_steps_are_steady(gaps, more):
    assert more_warmup(gaps, WARM) == pytest.approx(more, abs=1)


class Heating:
    """A session and its clock in simulated time: a step takes longer and longer, for so many steps."""

    def __init__(self, heating: int) -> None:
        self._now, self._steps, self._heating = 0.0, 0, heating
        self._ends: list[float] = []

    def step(self) -> None:
        self._steps += 1
        self._now += 0.1 + 0.001 * min(self._steps, self._heating)

    def tick(self) -> None:
        self._ends.append(self._now)

    def drain(self) -> list[float]:
        ends, self._ends = self._ends, []
        return ends

    def clock(self) -> "Heating":
        return self

    def wait(self) -> None:
        """Nothing is under way."""

    is_own = False
    staleness = loss_later = get_weights = wait

    def settle(self) -> bool:
        return True

    def output_shape(self) -> tuple[int, ...]:
        return (1,)

    def loss(self) -> float:
        return 0.0


@pytest.mark.parametrize("heating", [0, 60, 120])
def test_steps_of_a_device_are_timed_when_it_is_as_hot_as_it_gets(tmp_path, heating):
    records: dict[str, dict[str, Any]] = {}
    write = SimpleNamespace(write=lambda kind, **fields: records.update({kind: fields}))
    job = {"schedule": {**WARM, "warmup_steps": 3}, "workload": {}}

    run_timed(Heating(heating), job, context_of(tmp_path, 0), write)

    warm = records["warmup"]["ends_s"]
    assert warm[-1] - warm[0] >= 5.0
    ends = [records["steps"]["origin_s"], *records["steps"]["ends_s"]]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    assert max(gaps) / min(gaps) < 1.02
    assert records["steps"]["tick_s"] >= 0.0
