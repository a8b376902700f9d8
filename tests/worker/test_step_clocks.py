"""When steps end: by the host, and by a device that runs behind it."""

import queue
import statistics
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.worker.clock import EventClock, HostClock, WaitingClock


class FakeDevice:
    """A device whose own clock reads what it is told, in milliseconds from a start of its own."""

    def __init__(self, moments_ms: list[float]) -> None:
        self._moments = iter(moments_ms)
        self.waits = 0

    def new_event(self) -> float:
        return next(self._moments)

    def elapsed_s(self, first: float, last: float) -> float:
        return (last - first) * 1e-3

    def synchronize(self) -> None:
        self.waits += 1

    def clock(self) -> EventClock:
        return EventClock(self.new_event, self.elapsed_s, self.synchronize)


GAPS_MS = st.lists(st.floats(0.0, 1e4), min_size=1, max_size=30)


@given(gaps=GAPS_MS)
def test_ends_of_a_device_rise_and_are_as_far_apart_as_the_device_says(gaps):
    moments = [sum(gaps[: count + 1]) for count in range(len(gaps))]
    clock = FakeDevice(moments).clock()
    for _ in gaps:
        clock.tick()
    ends = clock.drain()
    assert ends == sorted(ends)
    assert [later - ends[0] for later in ends] == pytest.approx([(m - moments[0]) * 1e-3 for m in moments], abs=1e-6)


def test_the_last_end_of_a_device_is_the_moment_of_the_drain():
    clock = FakeDevice([3.0, 5.0]).clock()
    clock.tick()
    clock.tick()
    before = time.monotonic()
    last = clock.drain()[-1]
    assert before <= last <= time.monotonic()


def test_a_tick_does_not_wait_for_the_device_and_a_drain_does_once():
    device = FakeDevice([1.0, 2.0, 3.0])
    clock = device.clock()
    for _ in range(3):
        clock.tick()
    assert device.waits == 0
    clock.drain()
    assert device.waits == 1


def test_the_host_waits_for_a_step_before_it_reads_its_clock():
    clock = HostClock(lambda: time.sleep(0.01))
    before = time.monotonic()
    clock.tick()
    clock.tick()
    first, second = clock.drain()
    assert first - before >= 0.01
    assert second - first >= 0.01


@pytest.mark.parametrize(
    "clock",
    [HostClock(lambda: None), FakeDevice([1.0, 2.0]).clock(), WaitingClock(lambda: None, id, lambda: None, 2)],
    ids=["host", "device", "threads"],
)
def test_a_drained_clock_begins_anew(clock):
    clock.tick()
    assert len(clock.drain()) == 1
    assert clock.drain() == []
    clock.tick()
    assert len(clock.drain()) == 1


class RunningDevice:
    """A device that is a thread: it does what is issued in turn, and the host runs ahead of it."""

    def __init__(self) -> None:
        self._issued: queue.Queue[tuple[float, threading.Event]] = queue.Queue()
        self.ends: list[float] = []
        self.newest = threading.Event()
        self.newest.set()
        self.may_work = threading.Event()
        self.may_work.set()
        threading.Thread(target=self._work, daemon=True).start()

    def issue(self, seconds: float) -> None:
        self.newest = threading.Event()
        self._issued.put((seconds, self.newest))

    def _work(self) -> None:
        while True:
            seconds, done = self._issued.get()
            self.may_work.wait(60.0)
            time.sleep(seconds)
            self.ends.append(time.monotonic())
            done.set()
            self._issued.task_done()

    def wait_for_all_that_is_issued(self, _: threading.Event) -> None:
        """Wait as a copy behind the newest work does, whichever work the caller means."""
        self.newest.wait()

    def clock(self, *, at_once: int | None) -> WaitingClock:
        wait_for = threading.Event.wait if at_once is None else self.wait_for_all_that_is_issued
        return WaitingClock(lambda: self.newest, wait_for, self._issued.join, at_once)


@pytest.mark.parametrize("at_once", [None, 8], ids=["each result knows", "all that is issued"])
def test_waiting_threads_note_the_ends_of_a_device_while_the_host_runs_ahead(at_once):
    device = RunningDevice()
    clock = device.clock(at_once=at_once)
    device.may_work.clear()
    for _ in range(5):
        device.issue(0.04)
        clock.tick()
    assert device.ends == []
    device.may_work.set()

    ends = clock.drain()

    late = [noted - ended for noted, ended in zip(ends, device.ends, strict=True)]
    assert len(late) == 5
    assert min(late) > -1e-3
    assert statistics.median(late) < 0.03  # single threads may wake late on a busy machine


def test_the_host_is_no_more_steps_ahead_than_threads_wait():
    device = RunningDevice()
    clock = device.clock(at_once=2)
    began = time.monotonic()
    for _ in range(4):
        device.issue(0.05)
        clock.tick()
    assert time.monotonic() - began >= 0.1
    assert len(clock.drain()) == 4


def test_a_result_that_fails_is_raised_by_the_wait_for_the_device_and_by_no_thread():
    failure = ["the device has failed"]

    def fail(*_):
        raise RuntimeError(*failure)

    clock = WaitingClock(lambda: None, fail, fail)
    clock.tick()
    with pytest.raises(RuntimeError, match="the device has failed"):
        clock.drain()
