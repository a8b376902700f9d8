"""NVIDIA's management library of machines that are not there, in the place of the module ``pynvml``.

``FAKE_GPUS`` names the machine, one of ``MACHINES``; ``PYTHONPATH=tests/fake_driver`` puts it into other processes, and
``machine(name)`` gives a test its own. ``FAKE_GPU_PROCESSES`` names a file with the ids of the processes on each GPU.
"""

import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

GIB = 2**30
H100 = {"name": "NVIDIA H100 80GB HBM3", "capability": (9, 0), "memory": 80 * GIB, "watts": 700.0}
GEFORCE = {"name": "NVIDIA GeForce RTX 4090", "capability": (8, 9), "memory": 24 * GIB, "watts": 450.0}
MACHINES: dict[str, list[dict[str, Any]]] = {
    "h100": [H100],
    "hgx": [H100] * 4,
    "neighbours": [{**H100, "processes": 3, "reasons": 0x20}, {**H100, "processes": 1}],
    "geforce": [{**GEFORCE, "violations": False, "energy": False, "reasons": 0x40}],
    "mig": [{**H100, "parts": 3}, H100],
    "waiting": [{**H100, "busy": 11}],
    "old driver": [{**H100, "versions": False}],
    "none": [],
}
nvmlMemory_v2 = 0x2000028  # noqa: N816 - the library's name
RESERVED = 503_000_000
"""That the driver of an H100 held with no program running."""
NO_PROCESS = 1 << 23
"""No system numbers its processes as high."""
NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 0, 1
NVML_P2P_CAPS_INDEX_NVLINK, NVML_NVLINK_MAX_LINKS = 2, 18
GPUS = MACHINES[os.environ.get("FAKE_GPUS", "none")]


class NVMLError(Exception):
    """As the library's own."""


class NVMLLibraryMismatchError(Exception):
    """Likewise: of a function that an older driver has in another version alone."""


def machine(name: str) -> Any:
    """Return the library of a machine, whatever the variable says."""
    spec = importlib.util.spec_from_file_location(f"pynvml_of_{name}", __file__)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["GPUS"] = MACHINES[name]
    return module


def _of(handle: tuple[int, int | None]) -> dict[str, Any]:
    return GPUS[handle[0]]


def nvmlInit() -> None:  # noqa: N802 - the library's names, as all below
    if not GPUS:
        raise NVMLError


def nvmlShutdown() -> None:  # noqa: N802
    """Nothing was opened."""


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return "580.65.06"


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(GPUS)


def nvmlDeviceGetHandleByIndex(index: int) -> tuple[int, None]:  # noqa: N802
    return index, None


def nvmlDeviceGetMigMode(handle: tuple[int, int | None]) -> list[int]:  # noqa: N802
    if "parts" not in _of(handle):
        raise NVMLError
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(_: tuple[int, int | None]) -> int:  # noqa: N802
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: tuple[int, int | None], index: int) -> tuple[int, int]:  # noqa: N802
    if index >= _of(handle)["parts"]:
        raise NVMLError
    return handle[0], index


def nvmlDeviceGetHandleByUUID(uuid: str) -> tuple[int, int]:  # noqa: N802
    _, _, place = uuid.partition("MIG-")
    return int(place[0]), int(place[-1])


def nvmlDeviceGetName(handle: tuple[int, int | None]) -> str:  # noqa: N802
    return str(_of(handle)["name"]) + ("" if handle[1] is None else " MIG 1g.10gb")


def nvmlDeviceGetUUID(handle: tuple[int, int | None]) -> str:  # noqa: N802
    return f"GPU-{handle[0]}" if handle[1] is None else f"MIG-{handle[0]}-{handle[1]}"


def nvmlDeviceGetCudaComputeCapability(handle: tuple[int, int | None]) -> tuple[int, int]:  # noqa: N802
    found: tuple[int, int] = _of(handle)["capability"]
    return found


def nvmlDeviceGetMemoryInfo(handle: tuple[int, int | None], version: int | None = None) -> SimpleNamespace:  # noqa: N802
    if version is not None and not _of(handle).get("versions", True):
        raise NVMLError
    whole = _of(handle)["memory"]
    used = 5 * GIB if version is not None else 5 * GIB + RESERVED
    return SimpleNamespace(total=whole if handle[1] is None else whole // 8, used=used)


def nvmlDeviceGetUtilizationRates(handle: tuple[int, int | None]) -> SimpleNamespace:  # noqa: N802
    if handle[1] is not None:
        raise NVMLError  # of a part it is not known
    return SimpleNamespace(gpu=_of(handle).get("busy", 97), memory=20)


def nvmlDeviceGetPciInfo(handle: tuple[int, int | None]) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(busId=f"00000000:0{handle[0]}:00.0")


def nvmlDeviceGetClockInfo(handle: tuple[int, int | None], _: int) -> int:  # noqa: N802
    if handle[1] is not None:
        raise NVMLError  # a part has no clock of its own
    return 1980


def nvmlDeviceGetMaxClockInfo(handle: tuple[int, int | None], _: int) -> int:  # noqa: N802
    if handle[1] is not None:
        raise NVMLError
    return 1980


def nvmlDeviceGetIndex(handle: tuple[int, int | None]) -> int:  # noqa: N802
    if handle[1] is not None:
        raise NVMLError
    return handle[0]


def nvmlDeviceGetTemperature(_: tuple[int, int | None], __: int) -> int:  # noqa: N802
    return 61


def nvmlDeviceGetPowerUsage(handle: tuple[int, int | None]) -> int:  # noqa: N802
    return int(500.0 * _of(handle)["watts"])


def nvmlDeviceGetTotalEnergyConsumption(handle: tuple[int, int | None]) -> int:  # noqa: N802
    if handle[1] is not None or not _of(handle).get("energy", True):
        raise NVMLError
    return int(500.0 * _of(handle)["watts"] * time.monotonic())  # millijoules, at half of the limit


def nvmlDeviceGetEnforcedPowerLimit(handle: tuple[int, int | None]) -> int:  # noqa: N802
    return int(1000.0 * _of(handle)["watts"])


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: tuple[int, int | None]) -> int:  # noqa: N802
    return int(_of(handle).get("reasons", 0))


def nvmlDeviceGetViolationStatus(handle: tuple[int, int | None], _: int) -> SimpleNamespace:  # noqa: N802
    if not _of(handle).get("violations", True):
        raise NVMLError
    return SimpleNamespace(violationTime=0)


def nvmlDeviceGetComputeRunningProcesses(handle: tuple[int, int | None]) -> list[SimpleNamespace]:  # noqa: N802
    if not _of(handle).get("versions", True):
        raise NVMLLibraryMismatchError
    return nvmlDeviceGetComputeRunningProcesses_v2(handle)


def nvmlDeviceGetComputeRunningProcesses_v2(handle: tuple[int, int | None]) -> list[SimpleNamespace]:  # noqa: N802
    pids = [NO_PROCESS + each for each in range(int(_of(handle).get("processes", 1)))]
    listed = os.environ.get("FAKE_GPU_PROCESSES")
    if listed is not None:
        pids = list(map(int, Path(listed).read_text().split())) if Path(listed).exists() else []
    return [SimpleNamespace(pid=each, usedGpuMemory=4 * GIB) for each in pids]


def nvmlDeviceGetP2PStatus(*_: object) -> int:  # noqa: N802
    return 0 if MACHINES["hgx"] == GPUS else 3


def nvmlDeviceGetNvLinkState(_: tuple[int, int | None], __: int) -> int:  # noqa: N802
    return 1


def nvmlDeviceGetTopologyCommonAncestor(*_: object) -> int:  # noqa: N802
    return 50
