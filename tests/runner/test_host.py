"""What this host has: enough memory for a trial, and which accelerators."""

import re

import pytest
import trials

from steptime.runner.host import cuda_device_names, memory_shortage
from steptime.study.trial import Trial
from steptime.workloads.table import build_workload

RESNET = build_workload("resnet50", (3, 64, 64), 10)


def trial(batch: int, workers: int = 1, device: str = "cpu") -> Trial:
    size = {"workload": "resnet50", "input_shape": (3, 64, 64)}
    return trials.trial(**size, batch_per_worker=batch, workers=workers, device=device)


def test_a_small_batch_fits():
    assert memory_shortage(trial(8), RESNET, 8 * 2**30) is None


def test_a_huge_batch_does_not_and_the_batch_that_is_named_does():
    reason = memory_shortage(trial(100_000), RESNET, 8 * 2**30)
    named = int(re.search(r"batch_per_worker (\d+) would fit", reason)[1])
    assert memory_shortage(trial(named), RESNET, 8 * 2**30) is None
    assert memory_shortage(trial(4 * named), RESNET, 8 * 2**30) is not None


def test_every_worker_needs_its_own():
    batch = next(b for b in (2**n for n in range(20)) if memory_shortage(trial(b), RESNET, 4 * 2**30))
    assert memory_shortage(trial(batch // 2), RESNET, 4 * 2**30) is None
    assert memory_shortage(trial(batch // 2, workers=8), RESNET, 4 * 2**30) is not None


def test_where_nothing_fits_fewer_workers_are_advised():
    assert "fewer workers" in memory_shortage(trial(8, workers=64), RESNET, 2**30)


@pytest.mark.parametrize("batch", [8, 10**9])
def test_a_device_is_left_to_say_for_itself(batch):
    assert memory_shortage(trial(batch, device="cuda"), RESNET, 2**30) is None


UUIDS = ["GPU-1a2b0000", "GPU-1a2b1111", "GPU-9f9f2222"]


class FakeNvml:
    """The management library of a host with three devices, or without a driver."""

    class NVMLError(Exception):
        """As the library's own."""

    def __init__(self, names: tuple[str, ...] = ("A100", "H100", "T4"), *, driver: bool = True) -> None:
        self._names, self._driver = names, driver
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name, as all below
        if not self._driver:
            raise self.NVMLError
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "MIG-5c":
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetName(self, handle: int | str) -> str:  # noqa: N802
        return "A100 MIG 1g.5gb" if isinstance(handle, str) else self._names[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return UUIDS[handle]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("0", ["A100"]),
        ("1", ["H100"]),
        ("2,0", ["T4", "A100"]),
        (" 1 , 2 ", ["H100", "T4"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["A100"]),
        ("0,3,1", ["A100"]),
        ("none", []),
        ("1,1", []),
        ("GPU-9f9f2222", ["T4"]),
        ("GPU-9f,0", ["T4", "A100"]),
        ("GPU-1a2b", []),
        ("GPU-0", []),
        ("MIG-5c", ["A100 MIG 1g.5gb"]),
        ("MIG-00", []),
    ],
)
def test_the_devices_are_those_that_cuda_leaves_visible_in_its_order(visible, names):
    assert cuda_device_names(FakeNvml(), visible) == names


def test_without_the_variable_all_devices_are_listed(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cuda_device_names(FakeNvml()) == ["A100", "H100", "T4"]


def test_the_variable_of_this_process_decides_where_no_other_is_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert cuda_device_names(FakeNvml()) == ["H100"]


def test_a_host_without_a_driver_has_no_devices():
    assert cuda_device_names(FakeNvml(driver=False), "0") == []


def test_the_library_is_closed_again():
    nvml = FakeNvml()
    cuda_device_names(nvml, "0")
    assert not nvml.open
