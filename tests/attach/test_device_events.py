"""Events on a device, on a double of ``torch.cuda``; benchmarks/attach/scripts/on_gpu.py is for real ones."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.attach import record_file
from steptime.attach import recorder as recorder_module
from steptime.attach.pytorch import device_clock, device_events
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


class TimedDevice(Device):
    """One that works as the time of the host goes on; times are those that one H100 showed."""

    def __init__(self):
        super().__init__()
        self.host_ms = 1000.0
        self.record_ms, self.recorded = 0.012, 0
        self.first_ms = 0.135  # of an event that is new

    def compute(self, milliseconds):
        self.queued_ms = max(self.queued_ms, self.host_ms) + milliseconds

    def ask(self, host_ms, device_ms):
        """Ask for work, which takes the host and the device so long; the first of it begins at once."""
        self.compute(device_ms)
        self.host_ms += host_ms

    def ask_in_pieces(self, host_ms, device_ms, pieces=20):
        for _ in range(pieces):
            self.host_ms += host_ms / pieces
            self.compute(device_ms / pieces)

    def wait(self, behind_ms=0.0):
        self.host_ms = max(self.host_ms, self.queued_ms - behind_ms)

    def Event(self, *, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        return TimedEvent(self)


class TimedEvent(Event):
    """One that the device passes at a time."""

    def record(self):
        first, self.at = self.at is None, max(self.device.queued_ms, self.device.host_ms)
        self.device.host_ms += self.device.first_ms if first else self.device.record_ms
        self.device.recorded += 1

    def query(self):
        self.device.host_ms += 0.002
        return self.at <= self.device.host_ms


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """Return a recorder and the device that it records."""
    device = TimedDevice()
    for module in (device_events, device_clock, recorder_module, record_file):
        monkeypatch.setattr(module, "now", lambda: round(device.host_ms * 1e6))
    made = Recorder(ProcessRecord(str(tmp_path), "test"))
    made.device = device_events.DeviceEvents(device, made)
    made.at_step.append(made.device.step_closed)
    return made, device


def train(recorder, ask, parts, wait=None, *, steps=40):
    """Train steps whose parts take the host and the device so many milliseconds."""
    for _ in range(steps):
        recorder.request_begin()
        recorder.request_end(1, "input")
        name = recorder.forward_begin(training=True)
        ask(*parts["forward"])
        recorder.forward_end(name)
        ask(*parts["loss"])
        recorder.backward_begin()
        ask(*parts["backward"])
        recorder.backward_end(synchronised=None)
        if wait is not None:
            wait()
        recorder.update_begin()
        ask(*parts["update"])
        recorder.update_end(0)


def settled(recorder):
    """Return the lines of steps behind the first ones."""
    return [line for line in written(recorder) if line["step"] >= 10]


GPT2 = {"forward": (5.0, 14.18), "loss": (0.3, 2.0), "backward": (7.0, 25.52), "update": (1.0, 1.5)}
TINY = {"forward": (3.5, 0.35), "loss": (0.3, 0.04), "backward": (4.0, 0.5), "update": (2.5, 0.2)}


@pytest.fixture
def recorder(tmp_path, device):
    made = Recorder(ProcessRecord(str(tmp_path), "test"))
    made.device = device_events.DeviceEvents(device, made)
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
    assert device.events == device_events.RING  # those made at start-up
    device.capturing = False
    train_step(recorder, device)
    device.finish()
    train_step(recorder, device)
    train_step(recorder, device)
    assert [line["step"] for line in written(recorder)] == [1]


def test_events_are_those_of_a_ring_that_was_made_at_start_up(recorder, device):
    for _ in range(50):
        train_step(recorder, device)
        device.finish()
    assert device.events == device_events.RING


def test_further_events_are_made_where_a_device_is_far_behind(recorder, device):
    for _ in range(20):
        train_step(recorder, device)
    assert device.events == 6 * 20


def test_a_device_that_is_far_behind_costs_a_limited_number_of_events(recorder, device):
    for _ in range(3 * device_events.WAITING_STEPS):
        train_step(recorder, device)
    assert len(recorder.device.waiting) == device_events.WAITING_STEPS


def test_an_event_that_cannot_be_recorded_ends_the_times_of_the_device_alone(recorder, device):
    train_step(recorder, device)
    device.broken = True
    train_step(recorder, device)
    device.finish()
    train_step(recorder, device)
    recorder.end()
    lines = [json.loads(line) for line in Path(recorder.file.path).read_text().splitlines()]
    assert [line["number"] for line in lines if line["kind"] == "step"] == [0, 1, 2]


def test_a_step_on_the_device_is_its_regions_and_the_gaps_between(timed):
    recorder, device = timed
    train(recorder, device.ask, GPT2)
    device.wait()
    recorder.device.ended()
    for line in settled(recorder):
        assert line["gaps"] == pytest.approx({"forward>backward": 2_000_000}, abs=5)
        assert line["step_ns"] == sum(line["regions"].values()) + sum(line["gaps"].values())
        assert line["step_ns"] == pytest.approx(43_200_000, abs=5)


def test_a_device_that_the_host_waits_for_in_every_step_worked_nearly_all_of_it(timed):
    """As in fp16, where the scaler reads whether gradients overflowed."""
    recorder, device = timed
    train(recorder, device.ask, GPT2, wait=device.wait)
    for line in settled(recorder):
        assert line["waited_ns"][1] < 0.03 * line["step_ns"]


def test_a_device_that_is_always_as_far_behind_did_not_wait(timed):
    """The host is held up by a full queue, so that it marks as often as the device passes marks."""
    recorder, device = timed
    train(recorder, device.ask, GPT2, wait=lambda: device.wait(behind_ms=30.0))
    assert settled(recorder)
    for line in settled(recorder):
        assert line["waited_ns"][0] < 0.05 * line["step_ns"]


def test_a_device_with_small_kernels_waits_for_the_host(timed):
    recorder, device = timed
    train(recorder, device.ask_in_pieces, TINY)
    for line in settled(recorder):
        assert line["step_ns"] == pytest.approx(10_300_000, rel=0.02)
        assert line["waited_ns"][0] > 0.8 * line["step_ns"]


def test_a_step_behind_one_without_events_has_no_length(recorder, device):
    for number in range(4):
        device.capturing = number == 1
        train_step(recorder, device)
        device.finish()
    device.capturing = False
    recorder.request_begin()
    recorder.request_end(1, "input")
    recorder.forward_begin(training=True)
    assert [("step_ns" in line, line["step"]) for line in written(recorder)] == [(False, 0), (False, 2), (True, 3)]


def test_the_last_steps_are_written_at_the_end(recorder, device):
    train_step(recorder, device)
    train_step(recorder, device)
    device.finish()
    recorder.device.ended()
    assert [line["step"] for line in written(recorder)] == [0]


class Graph:
    """A captured graph that counts its replays."""

    replays = 0

    def replay(self):
        Graph.replays += 1


@pytest.fixture
def replaying(recorder, device, monkeypatch):
    """Return a graph whose replays are measured."""
    own = type("CUDAGraph", (Graph,), {"replay": Graph.replay})
    monkeypatch.setattr(device, "is_initialized", lambda: True, raising=False)
    monkeypatch.setattr(device, "CUDAGraph", own, raising=False)
    device_events.install(SimpleNamespace(cuda=device), recorder, lambda: False)
    return own()


def test_a_replay_inside_a_region_is_a_part_of_that(recorder, device, replaying):
    """As of a module compiled with CUDA graphs, whose forward and backward passes replay one each."""
    for _ in range(3):
        name = recorder.forward_begin(training=True)
        device.compute(8)
        replaying.replay()
        recorder.forward_end(name)
        recorder.backward_begin()
        device.compute(16)
        replaying.replay()
        recorder.backward_end(synchronised=None)
        recorder.update_begin()
        device.compute(1)
        recorder.update_end(0)
        device.finish()
    line = written(recorder)[0]
    assert line["regions"] == {"forward": 8_000_000, "backward": 16_000_000, "update": 1_000_000}


def test_a_replay_outside_of_regions_is_a_step_and_runs_once(recorder, device, replaying):
    before = Graph.replays
    for _ in range(3):
        recorder.request_begin()
        recorder.request_end(1, "input")
        device.compute(8)
        replaying.replay()
        device.finish()
    recorder.end()
    steps = [json.loads(line) for line in Path(recorder.file.path).read_text().splitlines()]
    assert [list(line["regions"]) for line in steps if line["kind"] == "step"] == [["input", "replay"]] * 3
    assert Graph.replays - before == 3


SHORT = {"forward": (0.8, 0.2), "loss": (0.1, 0.02), "backward": (1.0, 0.3), "update": (0.6, 0.1)}


def test_parts_of_short_steps_are_timed_so_seldom_that_events_cost_little(timed):
    recorder, device = timed
    device.record_ms = 0.03
    train(recorder, device.ask, SHORT, steps=64)
    recorded, begun = device.recorded, device.host_ms
    train(recorder, device.ask, SHORT, steps=400)
    assert 0.03 * (device.recorded - recorded) < 0.03 * (device.host_ms - begun)


def test_what_an_event_costs_is_measured_at_start_up_and_spaces_the_first_steps(timed):
    """Steps of 2.53 ms with six events of 135 us: 32 % of the first ones, and of later ones nothing."""
    recorder, device = timed
    device.record_ms = 0.135
    recorder.device = device_events.DeviceEvents(device, recorder)
    recorder.at_step[-1] = recorder.device.step_closed
    train(recorder, device.ask, SHORT, steps=device_events.COSTED_STEPS)
    lines = written(recorder)
    assert lines[0]["event_ns"] == 135_000
    assert all("event_ns" not in line for line in lines[1:])
    assert sum("regions" in line for line in lines) <= 4


def test_the_length_of_a_step_that_is_not_timed_in_parts_is_known(timed):
    recorder, device = timed
    device.record_ms = 0.03
    train(recorder, device.ask, SHORT, steps=200)
    others = [line for line in written(recorder) if "regions" not in line]
    assert len(others) > 100
    assert all(line["step_ns"] == pytest.approx(2_530_000, rel=0.15) for line in others)


def test_all_steps_are_timed_in_parts_where_that_costs_little(timed):
    recorder, device = timed
    train(recorder, device.ask_in_pieces, TINY)
    assert all("regions" in line and line["cost_ns"] < 100_000 for line in written(recorder))


def test_a_region_that_goes_on_into_the_next_step_leaves_no_negative_time(recorder, device):
    """As Lightning's, in whose optimizer's step the passes run."""
    for _ in range(5):
        recorder.update_begin()
        train_step(recorder, device)
        device.finish()
    assert all(duration >= 0 for line in written(recorder) for duration in line["regions"].values())
    assert recorder.device.on
