"""The CUDA devices that a process may use, by what NVIDIA's management library tells."""

from types import SimpleNamespace

import pytest

from steptime.catalog.accelerators import find_accelerators, version_of
from steptime.results import machine

UUIDS = ["GPU-1a2b0000", "GPU-1a2b1111", "GPU-9f9f2222"]


class FakeNvml:
    """The management library of a host with three devices, or without a driver."""

    class NVMLError(Exception):
        """As the library's own."""

    def __init__(
        self, names: tuple[str, ...] = ("A100", "H100", "T4"), *, driver: bool = True, divided: tuple[int, ...] = ()
    ) -> None:
        self._names, self._driver, self._divided = names, driver, divided
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

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.65.06"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return (8, 0) if isinstance(handle, str) else [(8, 0), (9, 0), (7, 5)][handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if handle == 2 or isinstance(handle, str):
            raise self.NVMLError
        return SimpleNamespace(total=[40, 80][handle] * 10**9)

    def nvmlDeviceGetPciInfo(self, handle: int | str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:01:00.0" if isinstance(handle, str) else b"00000000:0%d:00.0" % handle)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        if handle == 2:
            raise self.NVMLError  # a device that cannot be divided
        return [int(handle in self._divided), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: int) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> str:  # noqa: N802
        if (handle, index) not in {(0, 2), (0, 3), (1, 0)}:
            raise self.NVMLError
        return f"MIG-{handle}{index}"

    def nvmlDeviceGetUUID(self, handle: int | str) -> str:  # noqa: N802
        return handle if isinstance(handle, str) else UUIDS[handle]


def names_of(nvml: FakeNvml, visible: str | None = None) -> list[str]:
    return [each.name for each in find_accelerators(nvml, visible).devices]


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
    assert names_of(FakeNvml(), visible) == names


def test_without_the_variable_all_devices_are_listed(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert names_of(FakeNvml()) == ["A100", "H100", "T4"]


@pytest.mark.parametrize(("visible", "seen"), [(None, ["MIG-02"]), ("1,0", ["MIG-10"]), ("2", ["GPU-9f9f2222"])])
def test_of_divided_devices_the_first_part_is_seen_and_nothing_else(monkeypatch, visible, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = find_accelerators(FakeNvml(divided=(0, 1)), visible)
    assert [each.uuid for each in found.devices] == seen


def test_the_variable_of_this_process_decides_where_no_other_is_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert names_of(FakeNvml()) == ["H100"]


def test_a_host_without_a_driver_has_no_devices():
    assert names_of(FakeNvml(driver=False), "0") == []


def test_the_library_is_closed_again():
    nvml = FakeNvml()
    names_of(nvml, "0")
    assert not nvml.open


def test_what_the_driver_tells_of_the_visible_devices_is_kept():
    found = find_accelerators(FakeNvml(), "1,2")

    assert found.driver == "580.65.06"
    assert found.capabilities == [(9, 0), (7, 5)]
    assert found.memory_bytes == 80e9


def test_versions_are_compared_by_their_numbers():
    assert version_of("525.60.13") < version_of("525.105.17") < version_of("580.65.06")


def test_the_machine_of_the_results_names_the_devices_that_workers_use_and_no_others(monkeypatch):
    monkeypatch.setattr(machine, "find_accelerators", lambda: find_accelerators(FakeNvml(), "1"))

    assert [gpu["name"] for gpu in machine.fingerprint()["gpus"]] == ["H100"]


def test_devices_that_a_process_sees_say_where_on_the_bus_they_are():
    found = find_accelerators(FakeNvml(), "2,0").devices

    assert [each.bus_address for each in found] == ["00000000:02:00.0", "00000000:00:00.0"]
