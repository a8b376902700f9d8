"""Events on a device, on a double of ``torch.cuda``; benchmarks/attach/scripts/on_gpu.py is for real ones."""

import json
from pathlib import Path

import pytest

from steptime.attach import torch_device
from steptime.attach.record_file import ProcessRecord
from steptime.attach.recorder import Recorder


class Device:
    """A stream that takes as long as it is told for what is asked of it, and is behind until it is told to go on."""

    def __init__(self):
        self.queued_ms = 0.0
        self.done_ms = 0.0
        self.capturing = False
        self.events = 0
        self.broken = False

    def compute(self, milliseconds):
        self.queued_ms += milliseconds

    def finish(self):
        self.done_ms = self.queued_ms

    def is_current_stream_capturing(self):
        return self.capturing

    def Event(self, *, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        self.events += 1
        return Event(self)


class Event:
    """A point on the stream; asking for its time before it is reached is an error, as waiting for it is."""

    def __init__(self, device):
        self.device = device
        self.at = None

    def record(self):
        if self.device.broken:
            raise RuntimeError
        assert not self.device.capturing
        self.at = self.device.queued_ms

    def query(self):
        assert not self.device.capturing
        return self.at <= self.device.done_ms

    def elapsed_time(self, other):
        assert self.query()
        assert other.query()
        return other.at - self.at


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def recorder(tmp_path, device):
    made = Recorder(ProcessRecord(str(tmp_path), "test"))
    made.device = torch_device.DeviceEvents(device, made)
    made.at_step.append(made.device.step_closed)
    return made


def train_step(recorder, device):
    recorder.request_begin()
    recorder.request_end(1, "input")
    name = recorder.forward_begin(training=True)
    device.compute(20)
    recorder.forward_end(name)
    device.compute(3)  # the loss, outside of the network
    recorder.backward_begin()
    device.compute(40)
    recorder.backward_end(synchronised=None)
    recorder.update_begin()
    device.compute(5)
    recorder.update_end(0)


def written(recorder):
    lines = map(json.loads, Path(recorder.file.path).read_text().splitlines())
    return [line for line in lines if line["kind"] == "device"]


def test_times_are_read_when_the_device_has_passed_the_events(recorder, device):
    for _ in range(4):
        train_step(recorder, device)
    assert written(recorder) == []
    device.finish()
    train_step(recorder, device)
    device.finish()
    train_step(recorder, device)
    assert [line["step"] for line in written(recorder)] == [0, 1, 2, 3, 4]
    assert written(recorder)[1]["regions"] == {"forward": 20_000_000, "backward": 40_000_000, "update": 5_000_000}
    assert written(recorder)[1]["span_ns"] == 68_000_000


def test_a_region_on_the_device_is_without_those_inside_of_it(recorder, device):
    for _ in range(3):
        recorder.request_begin()
        recorder.request_end(1, "input")
        recorder.update_begin()
        name = recorder.forward_begin(training=True)
        device.compute(20)
        recorder.forward_end(name)
        device.compute(5)
        recorder.update_end(0)
        device.finish()
    assert written(recorder)[0]["regions"] == {"update": 5_000_000, "forward": 20_000_000}


def test_no_event_is_asked_for_while_a_graph_is_captured(recorder, device):
    """As CUDA has it, which then ends the capture with an error."""
    train_step(recorder, device)
    train_step(recorder, device)
    device.capturing = True
    train_step(recorder, device)
    train_step(recorder, device)
    device.capturing = False
    assert recorder.device.on


def test_no_event_is_recorded_while_a_graph_is_captured(recorder, device):
    device.capturing = True
    train_step(recorder, device)
    assert device.events == 0
    device.capturing = False
    train_step(recorder, device)
    device.finish()
    train_step(recorder, device)
    train_step(recorder, device)
    assert [line["step"] for line in written(recorder)] == [1]


def test_events_are_used_again(recorder, device):
    for _ in range(50):
        train_step(recorder, device)
        device.finish()
    assert device.events <= 3 * 6


def test_a_device_that_is_far_behind_costs_a_limited_number_of_events(recorder, device):
    for _ in range(3 * torch_device.WAITING_STEPS):
        train_step(recorder, device)
    assert len(recorder.device.waiting) == torch_device.WAITING_STEPS


def test_an_event_that_cannot_be_recorded_ends_the_times_of_the_device_alone(recorder, device):
    train_step(recorder, device)
    device.broken = True
    train_step(recorder, device)
    device.finish()
    train_step(recorder, device)
    recorder.end()
    lines = [json.loads(line) for line in Path(recorder.file.path).read_text().splitlines()]
    assert [line["number"] for line in lines if line["kind"] == "step"] == [0, 1, 2]
