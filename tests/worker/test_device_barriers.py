"""At every barrier of a breakdown a device is idle, so that all workers' devices begin a step together."""

import itertools
import time
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


@pytest.mark.parametrize(("device", "workers"), [("cuda", 1), ("cpu", 2)], ids=["alone", "on a processor"])
def test_who_meets_nobody_or_has_no_device_runs_ahead_as_in_training(monkeypatch, device, workers):
    assert any(unfinished_at_barriers(monkeypatch, device, workers))


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
