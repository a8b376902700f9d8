import numpy as np
import pytest
from simulated import a_launch, a_trial, a_worker

from steptime.statistics.launch_times import step_times


def times(workers, strategy="allreduce"):
    return step_times(a_launch(a_trial(), workers=workers), strategy)


def test_one_workers_steps_are_the_differences_of_its_ends():
    assert times([a_worker([1.5, 1.7, 2.2], origin_s=1.0)]) == pytest.approx([0.5, 0.2, 0.5])


def test_a_step_ends_when_the_last_worker_ends_it():
    first = a_worker([1.0, 2.4, 3.0], 0, origin_s=0.1)
    second = a_worker([1.2, 2.0, 3.5], 1, origin_s=0.0)
    assert times([first, second]) == pytest.approx([1.1, 1.2, 1.1])


def test_step_times_add_up_to_the_time_from_the_last_origin_to_the_last_end():
    rng = np.random.default_rng(0)
    ends = np.cumsum(rng.uniform(0.1, 0.2, (4, 50)), axis=1)
    workers = [a_worker(row.tolist(), rank, origin_s=-0.01 * rank) for rank, row in enumerate(ends)]
    assert times(workers).sum() == pytest.approx(ends[:, -1].max())


def test_clocks_of_two_hosts_need_not_agree():
    ends = np.cumsum([0.1, 0.2, 0.1, 0.3, 0.1])
    here = a_worker(ends.tolist(), 0, "here")
    there = a_worker((ends + 5000.0).tolist(), 1, "there", origin_s=5000.0)
    assert times([here, there]) == pytest.approx([0.1, 0.2, 0.1, 0.3, 0.1])


def test_a_hiccup_of_another_host_is_seen_through_its_clock():
    here = a_worker([1.0, 2.0, 3.0, 4.0, 5.0], 0, "here")
    there = a_worker([101.0, 102.0, 103.4, 104.0, 105.0], 1, "there", origin_s=100.0)
    assert times([here, there]) == pytest.approx([1.0, 1.0, 1.4, 0.6, 1.0])


def test_a_launch_without_workers_has_no_steps():
    assert len(times([])) == 0


def test_a_worker_without_steps_leaves_none():
    assert len(times([a_worker([1.0]), a_worker([], 1)])) == 0


def test_asynchronous_workers_of_equal_speed_take_as_long_as_one():
    workers = [a_worker((np.arange(1, 101) * 0.1 + 0.02 * rank).tolist(), rank) for rank in range(4)]
    assert np.median(times(workers, "ps_async")) == pytest.approx(0.1)


def test_asynchronous_throughput_is_the_sum_of_the_workers():
    """Workers of 10 and 30 updates a second make 40: two updates take 1 / 20 of a second."""
    slow = a_worker((np.arange(1, 101) * 0.1).tolist(), 0)
    quick = a_worker((np.arange(1, 301) / 30.0).tolist(), 1)
    assert times([slow, quick], "ps_async").mean() == pytest.approx(1 / 20, rel=0.01)


def test_asynchronous_steps_end_when_the_first_worker_is_done():
    """Afterwards the slow worker has the machine to itself, which is not what was asked."""
    quick = a_worker((np.arange(1, 101) * 0.1).tolist(), 0)
    slow = a_worker((np.arange(1, 101) * 0.2).tolist(), 1)
    assert times([quick, slow], "ps_async").sum() <= 10.0


def test_synchronous_steps_of_the_same_ends_are_longer_than_asynchronous_ones():
    quick = a_worker((np.arange(1, 101) * 0.1).tolist(), 0)
    slow = a_worker((np.arange(1, 101) * 0.2).tolist(), 1)
    assert times([quick, slow]).mean() > times([quick, slow], "ps_async").mean()
