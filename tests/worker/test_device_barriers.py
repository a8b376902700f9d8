"""A breakdown on devices: blocks begin together on idle devices, and steps follow each other as in training."""

import itertools
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from steptime.worker import ablation
from steptime.worker.clock import EventClock
from steptime.worker.process_context import ProcessContext

STAGES = ("forward", "backward", "local", "exchange", "h2d", "communication", "input")


class QueuedDevice:
    """Counts what was issued and has not been waited for; every stage issues one piece of work."""

    def __init__(self) -> None:
        self.unfinished = 0

    def issue(self) -> None:
        self.unfinished += 1

    def wait(self) -> None:
        self.unfinished = 0


class DeviceSession:
    """A session whose steps and stages issue work to a device."""

    def __init__(self, device: QueuedDevice) -> None:
        self.step, self.wait = device.issue, device.wait
        self._device = device

    def clock(self) -> EventClock:
        return EventClock(time.monotonic, lambda first, last: last - first, self.wait)

    def batches_ahead(self) -> int:
        return 0

    def ablate(self) -> Any:
        stages = dict.fromkeys(STAGES, self._device.issue)
        return SimpleNamespace(stages=lambda: stages, marks=())


def unfinished_at_barriers(monkeypatch: pytest.MonkeyPatch, device: str, workers: int) -> list[int]:
    """Run a breakdown of a worker, and return how much of its device's work each barrier met."""
    queued, met = QueuedDevice(), []

    class Meeting:
        def __init__(self, _: object) -> None:
            self.from_first = lambda value: value
            self.clock_offset = itertools.count().__next__

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nobody is left."""

        def barrier(self) -> None:
            met.append(queued.unfinished)

    monkeypatch.setattr(ablation, "Rendezvous", Meeting)
    schedule = {"warmup_steps": 2, "seconds": 0.0, "min_blocks": 2, "max_blocks": 2, "max_steps": 2}
    job = {"device": device, "schedule": schedule, "seed": 1}
    records = SimpleNamespace(write=lambda *_, **__: None)
    ablation.run_ablation(DeviceSession(queued), job, SimpleNamespace(workers=workers), records)
    return met


def test_a_device_is_idle_at_every_barrier_of_several_workers(monkeypatch):
    met = unfinished_at_barriers(monkeypatch, "cuda", workers=2)
    assert met
    assert not any(met)


def test_a_processor_runs_ahead_of_its_engine_as_in_training(monkeypatch):
    assert any(unfinished_at_barriers(monkeypatch, "cpu", workers=2))


class SimulatedDevice:
    """A host and the queue of a device in simulated time: issuing takes the host a while, computing the device.

    An event takes the device a while too.
    """

    def __init__(self, issue_s: float, event_s: float = 0.0) -> None:
        self.now = self._free_at = 0.0
        self._issue_s, self._event_s = issue_s, event_s

    def stage(self, seconds: float) -> Callable[[], None]:
        def issue() -> None:
            self.now += self._issue_s  # the first kernel begins when all are issued: the latency at its largest
            self._free_at = max(self.now, self._free_at) + seconds

        return issue

    def event(self) -> float:
        self._free_at = max(self.now, self._free_at) + self._event_s
        return self._free_at

    def wait(self) -> None:
        self.now = max(self.now, self._free_at)


LASTING = {"forward": 1.0, "backward": 1.3, "local": 1.4, "exchange": 1.7}
"""Seconds of the device for a step of each stage; the whole step is an exchange."""


def stages_on(monkeypatch: pytest.MonkeyPatch, device: SimulatedDevice, workers: int) -> dict[str, list[list[float]]]:
    """Return what a breakdown writes of the stages of ``LASTING`` on a device."""
    stages = {name: device.stage(seconds) for name, seconds in LASTING.items()}
    session = SimpleNamespace(
        step=device.stage(LASTING["exchange"]),
        wait=device.wait,
        clock=lambda: EventClock(device.event, lambda first, last: last - first, device.wait),
        batches_ahead=lambda: 0,
        ablate=lambda: SimpleNamespace(stages=lambda: stages, marks=()),
    )

    class Meeting:
        def __init__(self, _: object) -> None:
            self.from_first = lambda value: value
            self.clock_offset = lambda: 0.0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nobody is left."""

        def barrier(self) -> None:
            device.now += 0.05

    monkeypatch.setattr(ablation, "Rendezvous", Meeting)
    schedule = {"warmup_steps": 2, "seconds": 300.0, "min_blocks": 3, "max_blocks": 3, "max_steps": 9}
    job = {"device": "cuda", "schedule": schedule, "seed": 1}
    written: dict[str, Any] = {}
    records = SimpleNamespace(write=lambda _, **fields: written.update(fields))
    ablation.run_ablation(session, job, SimpleNamespace(workers=workers), records)
    found: dict[str, list[list[float]]] = written["stages"]
    return found


@pytest.mark.parametrize("issue_s", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_time_in_which_a_host_issues_a_step_is_in_no_phase_of_a_device(monkeypatch, issue_s, workers):
    """A step that began on an idle device would last longer by just that."""
    found = stages_on(monkeypatch, SimulatedDevice(issue_s), workers)
    for name, seconds in {**LASTING, "step": LASTING["exchange"]}.items():
        for block in found[name]:
            assert all(math.isclose(each, seconds, abs_tol=1e-9) for each in block), name


def test_the_cost_of_a_clocks_mark_is_in_the_first_phase_and_in_no_other(monkeypatch):
    found = stages_on(monkeypatch, SimulatedDevice(0.2, event_s=0.25), workers=2)
    ends = [found[name][0][0] for name in LASTING]
    assert math.isclose(ends[0], LASTING["forward"] + 0.25)
    added = [later - earlier for earlier, later in itertools.pairwise(ends)]
    true = [later - earlier for earlier, later in itertools.pairwise(LASTING.values())]
    assert all(math.isclose(mine, right, abs_tol=1e-9) for mine, right in zip(added, true, strict=True))


def ablate_with(marks, marked_step=None):
    device = DeviceSession(QueuedDevice())
    stages = dict.fromkeys(STAGES, device.step)
    device.ablate = lambda: SimpleNamespace(stages=lambda: stages, marks=marks, marked_step=marked_step)
    schedule = {"warmup_steps": 0, "seconds": 0.0, "min_blocks": 1, "max_blocks": 1, "max_steps": 1}
    job = {"seed": 1, "schedule": schedule, "device": "cpu"}
    ablation.run_ablation(device, job, ProcessContext({}, ""), SimpleNamespace())


@pytest.mark.parametrize(
    "marks", [("backward", "forward"), ("forward", "reduce"), ("input", "input"), ("forward", "exchange", "update")]
)
def test_marks_that_a_step_cannot_have_are_refused(marks):
    """Before a step is run, since the time between them would go to a wrong phase."""
    with pytest.raises(ValueError, match=r"some of input, h2d, forward, .* in this order, and 'exchange' needs"):
        ablate_with(marks)


@pytest.mark.parametrize("set_", [("backward", "exchange"), ("backward",), ()])
def test_a_step_that_sets_other_marks_than_it_declares_is_refused(set_):
    def marked_step(mark):
        for name in set_:
            mark(name)

    with pytest.raises(ValueError, match="where its marks are 'backward', 'update'"):
        ablate_with(("backward", "update"), marked_step)
