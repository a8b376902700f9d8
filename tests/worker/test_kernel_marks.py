"""A clock of steps that the kernel contradicts is caught, whatever it does; right ones never are."""

import time
from itertools import pairwise
from statistics import median
from types import SimpleNamespace

import pytest
from test_step_clocks import RunningDevice
from test_step_count import context_of

from steptime.results.clock_marks import StoredMarks
from steptime.worker import clock as clocks
from steptime.worker.clock import HostClock, StepClock
from steptime.worker.kernel_marks import KernelMarks
from steptime.worker.timing import run_timed

STEPS, SHORT_S, LONG_S = 40, 0.003, 0.03
SCHEDULE = {"warmup_steps": 3, "seconds": 1000.0, "min_steps": 1, "max_steps": STEPS}


class Trained:
    """A session whose every eighth step is a long one."""

    def __init__(self, clock: StepClock) -> None:
        self._clock, self._steps = clock, 0

    def step(self):
        self._steps += 1
        time.sleep(SHORT_S if self._steps % 8 else LONG_S)

    def wait(self):
        """Steps are over when they return."""

    staleness = loss_later = get_weights = wait

    def clock(self):
        return self._clock

    def output_shape(self):
        return (1,)

    def loss(self):
        return 0.0


def timed(tmp_path, session):
    records = {}
    write = SimpleNamespace(write=lambda kind, **fields: records.update({kind: fields}))
    run_timed(session, {"schedule": SCHEDULE, "workload": {}}, context_of(tmp_path, 0), write)
    seen = records["steps"]
    return StoredMarks(**seen["kernel_marks"]), seen["origin_s"], seen["ends_s"]


def gaps_of(ends):
    return [later - earlier for earlier, later in pairwise(ends)]


def put_together(first, gaps):
    ends = [first]
    for gap in gaps:
        ends.append(ends[-1] + gap)
    return ends


def scaled(factor):
    return lambda gaps: [factor * gap for gap in gaps]


def cut_at_median(gaps):
    return [min(gap, 1.2 * median(gaps)) for gap in gaps]


def without_long(gaps):
    return [gap if gap < 0.02 else 0.0 for gap in gaps]


def slow_in_the_middle(gaps):
    third = len(gaps) // 3
    return [gap * (0.7 if third <= place < 2 * third else 1.0) for place, gap in enumerate(gaps)]


def moved_to_the_last(gaps):
    cut = cut_at_median(gaps)
    return [*cut[:-1], cut[-1] + sum(gaps) - sum(cut)]


def added(gaps):
    return [gap + 0.002 for gap in gaps]


def shortened(gaps):
    return [max(0.0, gap - 0.0005) for gap in gaps]


WRONG = {
    "0.92 of the time": scaled(0.92),
    "0.7 of the time": scaled(0.7),
    "1.1 of the time": scaled(1.1),
    "long steps as the median": cut_at_median,
    "long steps left out": without_long,
    "slow in the middle": slow_in_the_middle,
    "long steps moved to the last": moved_to_the_last,
    "2 ms more for each step": added,
    "half a millisecond less for each step": shortened,
}


class Wrong(HostClock):
    """A clock that does something with the seconds of steps before anybody sees them."""

    def __init__(self, change):
        super().__init__(lambda: None)
        self._change = change

    def drain(self):
        ends = super().drain()
        return put_together(ends[0], self._change(gaps_of(ends))) if ends else ends


class Backwards(Wrong):
    """The same, with a right last moment."""

    def drain(self):
        ends = HostClock.drain(self)
        if not ends:
            return ends
        changed = put_together(0.0, self._change(gaps_of(ends)))
        return [ends[-1] - changed[-1] + each for each in changed]


@pytest.mark.parametrize("clock", [Wrong, Backwards])
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_clock_that_changes_the_seconds_of_steps_is_contradicted(tmp_path, clock, change):
    marks, origin_s, ends_s = timed(tmp_path, Trained(clock(change)))
    assert "where the kernel counts" in marks.mistake(origin_s, ends_s)


def test_the_time_of_python_may_not_be_slowed(tmp_path, monkeypatch):
    real, began = time.monotonic, time.monotonic()
    slowed = SimpleNamespace(monotonic=lambda: began + 0.7 * (real() - began))
    monkeypatch.setattr(clocks, "time", slowed)
    marks, origin_s, ends_s = timed(tmp_path, Trained(HostClock(lambda: None)))
    assert "where the kernel counts" in marks.mistake(origin_s, ends_s)


def test_a_right_clock_is_not_contradicted(tmp_path):
    marks, origin_s, ends_s = timed(tmp_path, Trained(HostClock(lambda: None)))
    assert marks.marks
    assert marks.mistake(origin_s, ends_s) is None


class OnDevice(Trained):
    """A session whose device runs behind the host."""

    def __init__(self, clock_of):
        self.device = RunningDevice()
        super().__init__(clock_of(self.device))

    def step(self):
        self._steps += 1
        self.device.issue(SHORT_S if self._steps % 8 else LONG_S)

    def wait(self):
        self.device._issued.join()


@pytest.mark.parametrize("at_once", [None, 8], ids=["each result knows", "all that is issued"])
def test_a_right_clock_of_a_device_that_runs_behind_is_not_contradicted(tmp_path, at_once):
    marks, origin_s, ends_s = timed(tmp_path, OnDevice(lambda device: device.clock(at_once=at_once)))
    assert marks.mistake(origin_s, ends_s) is None


def test_a_clock_that_notes_when_a_step_was_asked_for_is_caught(tmp_path):
    marks, origin_s, ends_s = timed(tmp_path, OnDevice(lambda _: HostClock(lambda: None)))
    assert "before it was over" in marks.mistake(origin_s, ends_s)


@pytest.mark.parametrize("every", [2, 3])
def test_a_clock_that_notes_only_some_steps_fails(tmp_path, every):
    class Rare(HostClock):
        def drain(self):
            return super().drain()[::every]

    with pytest.raises(RuntimeError, match="it must note one at each tick"):
        timed(tmp_path, Trained(Rare(lambda: None)))


def test_a_system_clock_that_was_set_meanwhile_is_no_evidence(monkeypatch):
    real = time.clock_gettime
    with KernelMarks() as marks:
        marks.put(0, over=False)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + (clock == time.CLOCK_REALTIME))
        assert marks.read() == []
