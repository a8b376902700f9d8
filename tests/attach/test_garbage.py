"""Collections of garbage are told apart from the region or the gap in which they happen."""

import gc

import pytest
from test_step_rule import MS, TRAINING, Played

from steptime.attach import garbage


@pytest.fixture
def played(tmp_path, monkeypatch):
    return Played(tmp_path, monkeypatch)


def collect(played, milliseconds):
    begin = played.at
    played.wait(milliseconds)
    played.recorder.collections.add(begin, milliseconds * MS)


def in_forward(played):
    name = played.recorder.forward_begin(training=True)
    played.wait(10)
    collect(played, 30)
    played.recorder.forward_end(name)


def in_a_gap(played):
    played.forward(10)
    collect(played, 30)


def in_input(played):
    played.forward(10)
    played.backward(10)
    played.recorder.request_begin()
    collect(played, 30)
    played.recorder.request_end(2, "input")
    played.forward(10)


def inside_of_another_region(played):
    played.recorder.enter("update")
    played.forward(10)
    collect(played, 30)
    played.recorder.leave("update")


@pytest.mark.parametrize("where", [in_forward, in_a_gap, in_input, inside_of_another_region])
def test_a_collection_is_a_part_of_its_own_wherever_it_happens(played, where):
    for _ in range(3):
        played.request(TRAINING, 5)
        where(played)
        played.backward(10)
        played.update(1)
    _, step, _ = played.lines("step")
    assert (step["regions"]["collection"], step["collections"]) == (30 * MS, [1, 30 * MS])
    assert sum(step["regions"].values()) + sum(step["gaps"].values()) == step["duration_ns"]


def test_collections_before_the_first_step_are_none_of_it(played):
    collect(played, 700)
    for _ in range(2):
        played.request(TRAINING, 5)
        played.forward(10)
        played.backward(10)
        played.update(1)
    assert all("collections" not in step for step in played.lines("step"))


def test_a_step_without_a_collection_has_none(played):
    for _ in range(2):
        played.request(TRAINING, 5)
        played.forward(10)
        played.backward(10)
        played.update(1)
    assert all("collections" not in step for step in played.lines("step"))


def test_the_interpreter_reports_its_own_collections(played):
    garbage.watch(played.recorder)
    try:
        cycles = [[] for _ in range(300_000)]
        gc.collect()
    finally:
        gc.callbacks.pop()
    assert len(cycles) == 300_000
    assert played.recorder.collections.count >= 1
