"""Samples of lines are taken ever more seldom, so that a long run pays little for them."""

import sys
from types import SimpleNamespace

import pytest
from test_step_rule import EVALUATION, TRAINING, Played

from steptime.attach import line_sampler
from steptime.attach.account import TimeSums
from steptime.attach.line_sampler import EVERY_S, MOST_S, LineSampler


@pytest.mark.parametrize(
    ("after_s", "every_s"), [(0, EVERY_S), (4, 0.2), (3600, MOST_S)], ids=["at first", "four seconds", "an hour"]
)
def test_the_distance_of_samples_grows_with_the_time_since_the_first(monkeypatch, after_s, every_s):
    written = []
    sampler = LineSampler(SimpleNamespace(file=SimpleNamespace(write=written.append)), "on")
    sampler.began = 5 * 10**9
    monkeypatch.setattr(line_sampler, "now", lambda: sampler.began + after_s * 10**9)
    for number in (1, 2):
        sampler.places = {"forward": {"train.py:3 main": 7}}
        sampler.write(number)
    assert [line["every_ns"] for line in written] == [EVERY_S * 1e9, pytest.approx(every_s * 1e9)]


def frame_in(file, module):
    space = {"__name__": module, "sys": sys}
    exec(compile("frame = sys._getframe()", file, "exec"), space)  # noqa: S102 - it is code made from text
    return space["frame"]


@pytest.mark.parametrize("first", [True, False], ids=["the user's first", "a library's first"])
def test_code_made_from_text_is_judged_anew_in_each_module(first):
    sampler = LineSampler(SimpleNamespace(), "on")
    modules = ["__main__", "attrs"] if first else ["attrs", "__main__"]
    judged = {module: sampler._file_of(frame_in("<string>", module))[0] for module in modules}
    assert judged == {"__main__": True, "attrs": False}


def test_a_file_of_code_is_judged_once(monkeypatch):
    asked = []
    monkeypatch.setattr(line_sampler, "is_user_frame", lambda frame, _: asked.append(frame.f_code.co_filename) or True)
    sampler = LineSampler(SimpleNamespace(), "on")
    assert [sampler._file_of(frame_in("/home/me/train.py", "__main__")) for _ in range(3)] == [(True, "")] * 3
    assert asked == ["/home/me/train.py"]


@pytest.mark.parametrize(
    ("regions", "gaps", "samples"),
    [
        ({"input": 30, "forward": 70}, {}, True),
        ({"nograd": 30, "forward": 70}, {}, True),
        ({"forward": 70}, {"update>input": 30}, True),
        ({"input": 4, "nograd": 3, "forward": 90}, {"update>input": 3}, False),
        ({"forward": 30, "backward": 50, "update": 20}, {}, False),
    ],
    ids=["input", "a reference model", "a gap", "a tenth together", "passes alone"],
)
def test_lines_are_sampled_where_they_explain_more_than_a_tenth_of_the_steps(monkeypatch, regions, gaps, samples):
    started = []
    monkeypatch.setattr(LineSampler, "start", lambda _, number: started.append(number))
    sums = TimeSums()
    sums.regions, sums.gaps = regions, gaps
    sampler = LineSampler(SimpleNamespace(), "auto")
    for number in range(1, line_sampler.STEPS + 1):
        sampler.step_closed(number, 100, sums.in_unmarked_code())
    assert started == [line_sampler.STEPS] * samples


def read(played, line, source, *, training):
    played.recorder.request_begin()
    played.recorder.sampler._count(line, "")
    played.recorder.request_end(source, "input")
    played.forward(20, training=training)


@pytest.mark.parametrize("source", [EVALUATION, TRAINING], ids=["by a loader of its own", "by the training's"])
def test_lines_of_an_evaluations_requests_are_none_of_the_input_of_steps(tmp_path, monkeypatch, source):
    played = Played(tmp_path, monkeypatch)
    played.recorder.sampler = LineSampler(played.recorder, "off")
    for _ in range(4):
        played.request(TRAINING, 1, "loader_start")
        read(played, "train.py:3 train", TRAINING, training=True)
        played.backward(30)
        played.update(5)
        played.request(source, 1, "loader_start")
        for _ in range(3):
            read(played, "train.py:9 test", source, training=False)
        played.request(source, 1, "epoch")
    (line,) = played.lines("lines")
    assert line["places"]["input"] == {"train.py:3 train": 4}
    assert line["places"]["evaluation"].keys() == {"train.py:9 test"}
