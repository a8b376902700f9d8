"""How much longer steps are of workers that share the cores of their machine, against a scheduler that gives turns."""

from itertools import count

import numpy as np
import pytest

from steptime.model.shared_cores import SHARING, MachineCores


def turns_taken(workers, threads, cores, work_s=1.0, turn_s=1e-3):
    """Return the seconds until all threads of all workers had their processor time, in turns on the cores."""
    left = np.full(workers * threads, round(work_s / turn_s))
    for turn in count(1):
        left[np.argsort(-left, kind="stable")[:cores]] -= 1
        if left.max() <= 0:
            return turn * turn_s
    raise AssertionError


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_threads_that_take_turns_on_cores_last_as_much_longer_as_they_are_more(workers, threads, cores):
    longer = MachineCores(float(cores), float(threads)).stretch(np.array([float(workers)]))[0]
    assert longer == pytest.approx(turns_taken(workers, threads, cores), rel=0.01)


def test_workers_are_slower_by_what_sharing_adds_with_each_doubling_of_their_turns():
    shared = MachineCores(2.0)
    slower = shared.slowdown(np.array([2.0, 4.0, 8.0]))
    assert slower == pytest.approx([1.0, 2.0 * np.exp(SHARING[0]), 4.0 * np.exp(2 * SHARING[0])])
    assert shared.deviation(8, 2) == pytest.approx(2 * SHARING[1])


def test_what_was_measured_in_turns_leaves_less_open_than_what_was_measured_alone():
    shared = MachineCores(2.0)
    assert shared.deviation(8, 4) < shared.deviation(8, 2)
    assert shared.deviation(8, 8) == 0.0


@pytest.mark.parametrize("workers", [1, 8, 16])
def test_nothing_is_uncertain_where_cores_suffice(workers):
    shared = MachineCores(16.0, hardware_threads=16)
    assert shared.covariance(np.array([1.0, workers])).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert shared.sentence(workers) == ""


def test_second_threads_of_cores_add_between_nothing_and_a_third_of_a_core():
    single, double = MachineCores(4.0, hardware_threads=4), MachineCores(4.0, hardware_threads=8)
    eight = np.array([8.0])
    longer, spread = float(double.stretch(eight)[0]), double.deviation(8, 1)
    assert longer / single.stretch(eight)[0] == pytest.approx(1 / 1.15)
    assert longer * np.exp(-1.645 * spread) < 8 / (1.3 * 4) < 8 / 4 < longer * np.exp(1.645 * spread)


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (MachineCores(2.0), "from 3 workers of a machine on, its 2 cores are shared: each keeps 1 thread busy, so 8 "),
        (
            MachineCores(1.0),
            "from 2 workers of a machine on, its core is shared: each keeps 1 thread busy, so 8 take ",
        ),
        (MachineCores(0.5), "from 1 worker of a machine on, its 0.5 cores are shared: each keeps 1 thread busy, so 8 "),
        (
            MachineCores(4.0, 2.0),
            "from 3 workers of a machine on, its 4 cores are shared: each keeps 2 threads",
        ),
    ],
)
def test_it_is_said_from_how_many_workers_on_cores_are_shared(shared, said):
    assert shared.sentence(8).startswith(said)
