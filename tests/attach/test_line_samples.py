"""Samples of lines are taken ever more seldom, so that a long run pays little for them."""

from types import SimpleNamespace

import pytest

from steptime.attach import line_sampler
from steptime.attach.line_sampler import EVERY_S, MOST_S, LineSampler


@pytest.mark.parametrize(
    ("after_s", "every_s"), [(1, EVERY_S), (10, 0.2), (3600, MOST_S)], ids=["at first", "ten seconds", "an hour"]
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
