"""What this host has: enough memory for a trial."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import trials

from living_processes import wait_until
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.workloads.table import build_workload
from steptime.execution.host import (
    SharedCores,
    cores_near,
    memory_shortage,
    shared_batches_bytes,
    shared_memory_bytes,
)
from steptime.runner.admission import launches_on_a_device, shared_memory_warning
from steptime.study.trial import Trial

RESNET = build_workload("resnet50", (3, 64, 64), 10)


def trial(batch: int, workers: int = 1, device: str = "cpu", optimizer: str = "sgd") -> Trial:
    size = {"workload": "resnet50", "input_shape": (3, 64, 64), "optimizer": Optimizer(name=optimizer)}
    return trials.trial(**size, batch_per_worker=batch, workers=workers, device=device)


def test_a_small_batch_fits():
    assert memory_shortage(trial(8), RESNET, 8 * 2**30) is None


def test_a_huge_batch_does_not_and_the_batch_that_is_named_does():
    reason = memory_shortage(trial(100_000), RESNET, 8 * 2**30)
    named = int(re.search(r"batch_per_worker (\d+) would fit", reason)[1])
    assert memory_shortage(trial(named), RESNET, 8 * 2**30) is None
    assert memory_shortage(trial(4 * named), RESNET, 8 * 2**30) is not None


@pytest.mark.parametrize(("gigabytes", "cores", "side_by_side"), [(140, 16, 4), (140, 2, 1), (16, 16, 2), (8, 16, 1)])
def test_launches_share_a_device_that_has_memory_and_a_host_that_has_cores(gigabytes, cores, side_by_side):
    """ResNet-50 with 8 pictures needs 1 GB beside what cuDNN tries."""
    one = trial(8, device="cuda")
    assert launches_on_a_device([one], {one.id: RESNET}, gigabytes * 2**30, cores) == side_by_side


def test_no_launches_share_a_device_whose_memory_is_unknown():
    one = trial(8, device="cuda")
    assert launches_on_a_device([one], {one.id: RESNET}, None, 16) == 1


def test_adam_keeps_a_value_per_weight_more_than_momentum():
    available = next(b for b in range(2**28, 2**33, 2**22) if memory_shortage(trial(8), RESNET, b) is None)
    least = next(
        b for b in range(2**28, 2**33, 2**22) if memory_shortage(trial(8, optimizer="adam"), RESNET, b) is None
    )
    assert least - available == pytest.approx(4 * RESNET.parameter_count, abs=2**23)


def test_every_worker_needs_its_own():
    batch = next(b for b in (2**n for n in range(20)) if memory_shortage(trial(b), RESNET, 4 * 2**30))
    assert memory_shortage(trial(batch // 2), RESNET, 4 * 2**30) is None
    assert memory_shortage(trial(batch // 2, workers=8), RESNET, 4 * 2**30) is not None


def test_where_nothing_fits_fewer_workers_are_advised():
    assert "fewer workers" in memory_shortage(trial(8, workers=64), RESNET, 2**30)


def with_helpers(batch: int, processes: int, **changes: object) -> Trial:
    size = {"input_shape": (3, 64, 64), "dataset": "photos", "loader": "native", "loader_processes": processes}
    return trials.trial(**{**size, **changes}, batch_per_worker=batch)


def test_helpers_of_all_workers_hold_two_batches_each_as_floats_or_on_a_device_as_bytes():
    image = 3 * 64 * 64
    assert shared_batches_bytes(with_helpers(16, 3)) == 2 * 3 * 16 * image * 4
    assert shared_batches_bytes(with_helpers(16, 3, device="cuda", workers=4)) == 4 * 2 * 3 * 16 * image
    assert shared_batches_bytes(with_helpers(16, 0)) == 0


def test_batches_that_the_shared_memory_may_not_hold_are_named_before_a_launch():
    few, many = with_helpers(16, 2), with_helpers(10**9, 8)
    free, _ = shared_memory_bytes()

    assert shared_memory_warning([few]) is None
    assert shared_memory_warning([]) is None
    warning = shared_memory_warning([few, many])
    assert many.id in warning
    assert "--shm-size" in warning
    assert shared_batches_bytes(many) > free


def test_a_machine_without_shared_memory_is_not_warned_of(tmp_path):
    assert shared_memory_bytes(tmp_path / "nowhere") is None
    assert shared_memory_warning([with_helpers(10**9, 8)], tmp_path / "nowhere") is None


@pytest.mark.parametrize("batch", [8, 10**9])
def test_a_device_of_unknown_size_is_left_to_say_for_itself(batch):
    assert memory_shortage(trial(batch, device="cuda"), RESNET, 2**30) is None


def test_a_device_of_known_size_is_held_to_it_before_launching():
    reason = memory_shortage(trial(10_000, device="cuda"), RESNET, device_bytes=8e9)
    named = int(re.search(r"batch_per_worker (\d+) would fit", reason)[1])

    assert memory_shortage(trial(named, device="cuda"), RESNET, device_bytes=8e9) is None
    assert memory_shortage(trial(named + 1, device="cuda"), RESNET, device_bytes=8e9) is not None


def test_each_worker_has_a_device_of_its_own():
    assert memory_shortage(trial(64, workers=8, device="cuda"), RESNET, device_bytes=8e9) is None


def test_a_device_that_not_even_one_sample_fits_says_so():
    assert "no batch fits the device" in memory_shortage(trial(8, device="cuda"), RESNET, device_bytes=2**28)


@pytest.fixture
def pci(tmp_path):
    """The kernel's folder of PCI devices of a host with two nodes: a device on each, and one that says nothing."""
    for name, listed in (("0000:3b:00.0", "0-1,8-9\n"), ("0000:af:00.0", "2-3,10-11\n"), ("0000:d8:00.0", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "local_cpulist").write_text(listed)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("0000:3b:00.0", (0, 1, 8)),
        ("00000000:AF:00.0", (2, 3)),  # as NVIDIA's library writes it
        ("0000:d8:00.0", (0, 1, 2, 3, 8)),
        ("0000:00:00.0", (0, 1, 2, 3, 8)),
        (None, (0, 1, 2, 3, 8)),
    ],
)
def test_cores_near_a_device_are_those_of_its_node_that_may_be_used(pci, address, near):
    assert cores_near(address, (0, 1, 2, 3, 8), pci) == near


def test_a_device_whose_cores_may_not_be_used_leaves_all_that_may(pci):
    assert cores_near("0000:af:00.0", (0, 1), pci) == (0, 1)


def most_at_once(count: int, workers: list[int]) -> int:
    """Return the most workers that ran at once of launches of so many ``workers``, begun side by side."""
    cores, running, most, lock = SharedCores(count), 0, 0, threading.Lock()

    def launch(own: int) -> None:
        nonlocal running, most
        with cores.taken(own, threading.Event()):
            with lock:
                running += own
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= own

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(launch, workers))
    return most


@pytest.mark.parametrize(
    ("count", "workers", "most"),
    [(2, [1, 1, 1, 1], 2), (2, [2, 2, 2], 2), (2, [1, 2, 1, 2], 2), (4, [3, 3, 1], 4), (1, [4, 4], 4)],
)
def test_workers_of_launches_side_by_side_have_a_core_each_as_far_as_there_are_cores(count, workers, most):
    assert most_at_once(count, workers) <= most


@pytest.mark.parametrize("workers", [1, 2])
def test_launches_whose_workers_have_a_core_each_run_side_by_side(workers):
    cores, both = SharedCores(4), threading.Barrier(2)

    def launch() -> None:
        with cores.taken(workers, threading.Event()):
            both.wait(timeout=60.0)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(launch), pool.submit(launch)]:
            each.result()


def test_a_launch_of_many_workers_is_not_passed_by_small_ones_that_asked_later():
    cores, order = SharedCores(2), []

    def launch(name: str, workers: int) -> None:
        with cores.taken(workers, threading.Event()):
            order.append(name)

    with ThreadPoolExecutor(3) as pool, cores.taken(1, threading.Event()):
        for asking, (name, workers) in enumerate((("large", 2), ("small", 1)), start=1):
            pool.submit(launch, name, workers)
            assert wait_until(lambda asking=asking: len(cores._waiting) == asking)
        assert order == []
    assert order == ["large", "small"]


def test_a_launch_that_waits_for_cores_ends_its_wait_when_it_is_cancelled():
    cores, cancelled = SharedCores(1), threading.Event()
    with cores.taken(1, cancelled), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: cores.taken(1, cancelled).__enter__())
        assert not waiting.done()
        cancelled.set()
        waiting.result(timeout=60.0)
