"""What a timed launch keeps beside its times is right, and nothing of it is read between timed steps."""

import itertools
import threading
import types
import zlib

import numpy as np
import pytest
from standin import CORE, fill_standin, play

from steptime.worker.session import DrawnBatches, KeptLosses, kept_steps
from steptime.worker.timed_evidence import Evidence, UpdateSketcher, seen_batches
from steptime.worker.weights import initial_weights


class Counting:
    """A session whose loss is the number of its steps, and that knows when it is read."""

    def __init__(self):
        self.steps, self.read_at = 0, []

    def step(self):
        self.steps += 1

    def loss_later(self):
        step = self.steps

        def read():
            self.read_at.append(self.steps)
            return float(step)

        return read


def test_losses_are_kept_of_ever_rarer_steps():
    assert list(itertools.islice(kept_steps(), 8)) == [1, 8, 24, 64, 160, 400, 1000, 2500]


def test_kept_losses_are_those_of_their_steps_and_read_behind_the_last():
    session, ticks = Counting(), []
    losses = KeptLosses(session)

    losses.take(5, lambda: ticks.append(session.steps))
    losses.take(1)
    losses.take(60, lambda: ticks.append(session.steps))

    assert losses.read() == [(1, 1.0), (8, 8.0), (24, 24.0), (64, 64.0)]
    assert session.read_at == [66] * 4
    assert ticks == [*range(1, 6), *range(7, 67)]


class Here:
    """A process context."""

    rank, workers = 1, 2


def test_drawn_batches_are_counted_and_some_of_them_remembered():
    order = ((0, np.arange(number, number + 4)) for number in itertools.count(1))

    list(itertools.islice(DrawnBatches.note(order, 1), 30))

    expected = zlib.crc32(np.arange(8, 12).astype("<i8").tobytes()) & 0x7FFFFFFF
    found = seen_batches(Here, steps=20)
    assert found["drawn"] == 30
    assert [number for number, *_ in found["batches"]] == [1, 8]
    assert found["batches"][1] == (8, 4, expected)


def test_nothing_is_said_of_batches_that_another_process_draws():
    here = Here()
    here.rank = 77

    assert seen_batches(here, steps=20) == {"drawn": None, "batches": []}


LAYER = {
    "kind": "linear",
    "attributes": {},
    "parameters": [
        {"name": "weight", "role": "weight", "shape": [40, 30]},
        {"name": "bias", "role": "bias", "shape": [40]},
    ],
}
JOB = {"workload": {"layers": [LAYER]}, "seed": 3}


def initial():
    return initial_weights(JOB["workload"]["layers"], JOB["seed"])


def test_initial_weights_have_no_update():
    found = UpdateSketcher(JOB).sketch(initial())

    assert all(numbers[1:] == [0.0] * 5 for numbers in found.values())


def test_sums_of_a_sketch_are_linear_in_the_update():
    sketcher, rng = UpdateSketcher(JOB), np.random.default_rng(0)
    steps = [{name: rng.normal(size=each.shape) for name, each in initial().items()} for _ in range(2)]
    one, other, both = (
        sketcher.sketch({name: each + sum(step[name] for step in chosen) for name, each in initial().items()})
        for chosen in ([steps[0]], [steps[1]], steps)
    )

    for name in both:
        np.testing.assert_allclose(np.add(one[name][2:], other[name][2:]), both[name][2:], rtol=1e-5)


def test_squares_of_the_sums_add_up_to_that_of_the_length():
    sketcher, ratios = UpdateSketcher(JOB), []
    for seed in range(200):
        update = np.random.default_rng(seed).normal(size=(40, 30))
        found = sketcher.sketch({**initial(), "weight": initial()["weight"] + update})["weight"]
        ratios.append(sum(each**2 for each in found[2:]) / np.sum(update**2))

    assert abs(np.mean(ratios) - 1.0) < 0.2


class Asynchronous:
    """A session of workers that do not wait for each other, over weights that two of them add to."""

    def __init__(self, weights, order, rank):
        self._weights, self._order, self._rank = weights, order, rank

    def staleness(self):
        return {}

    def step(self):
        self._order.append(self._rank)
        self._weights["bias"] += 1.0

    def wait(self):
        pass

    def get_weights(self):
        return self._weights


@pytest.mark.parametrize(("warmup", "turns"), [(5, 2), (4, 1)])
def test_workers_that_do_not_wait_take_their_first_steps_in_turn(tmp_path, warmup, turns):
    weights, order, found = initial(), [], {}

    def run(rank):
        context = types.SimpleNamespace(rank=rank, workers=2, folder=str(tmp_path))
        session = Asynchronous(weights, order, rank)
        evidence = Evidence(session, JOB, context)
        found[rank] = evidence.first_updates(lambda steps: [session.step() for _ in range(steps)], warmup)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert order == [0, 1] * turns
    pushes = [each["bias"][1] / found[0][0]["bias"][1] for each in found[0]]
    assert pushes == pytest.approx([1.0, 3.0][:turns])


def test_a_session_without_arrays_is_timed_as_before(tmp_path):
    found = play(CORE, fill_standin(tmp_path)).record("steps")

    assert (found["weights"], found["drawn"], found["samples"]) == ([], None, 1)
    assert [step for step, _ in found["losses"]][:2] == [1, 8]
