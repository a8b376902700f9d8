"""The CUDA devices of this host that a process may use, asked of NVIDIA's management library without any framework.

What their data sheets promise is in ``device_peaks.toml``.

The builds of a framework for CUDA devices: what is installed, and on which drivers and devices it runs.

Which architectures a wheel holds code for was read off the wheel itself (``benchmarks/gpu/wheel_architectures.py``),
which driver a toolkit needs off NVIDIA's release notes; docs/gpu.md has both tables.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from steptime.catalog.visible_devices import visible_devices

Version = tuple[int, ...]
_PART = "mig"
"""In the name of a part of a device, of which no sheet has figures."""


@dataclass(frozen=True)
class Accelerator:
    """One CUDA device; None if its driver does not say."""

    name: str
    uuid: str = ""
    capability: Version | None = None
    """The compute capability, as ``(9, 0)``: the architecture that code must be compiled for."""
    memory_bytes: float | None = None
    bus_address: str | None = None
    """On the PCI bus, as ``00000000:3b:00.0``."""


@dataclass(frozen=True)
class Accelerators:
    """The CUDA devices that a process sees, in its order, and their driver."""

    devices: tuple[Accelerator, ...] = ()
    driver: str | None = None
    """Its version, as ``580.65.06``."""
    place: str = "this machine"
    """Where they are."""

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def capabilities(self) -> list[Version]:
        """The compute capabilities that the devices tell."""
        return [each.capability for each in self.devices if each.capability is not None]

    @property
    def memory_bytes(self) -> float | None:
        """The memory of the smallest device; None if unknown."""
        return min((each.memory_bytes for each in self.devices if each.memory_bytes is not None), default=None)


def version_of(text: str) -> Version:
    """Return the numbers of a version as ``580.65.06``, to compare by."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


OCCUPIED_BYTES = 754e6 + 503e6
"""Of a device before the first weight: the context with cuBLAS (651 MB without), and what the driver reserves with no
program running, on an H100 (driver 580, PyTorch 2.11)."""


class NvmlFunctions(Protocol):
    """The functions of NVIDIA's management library that list accelerators, as the module ``pynvml`` names them."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> Any: ...  # noqa: ANN401, N802 - the library's
    def nvmlShutdown(self) -> Any: ...  # noqa: ANN401, N802
    def nvmlSystemGetDriverVersion(self) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetCount(self) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetName(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetUUID(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetMigMode(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> Any: ...  # noqa: ANN401, N802
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...  # noqa: ANN401, N802


def find_accelerators(nvml: NvmlFunctions | None = None, visible: str | None = None) -> Accelerators:
    """Return the CUDA devices that a process sees; none where there is no driver.

    Launches set ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, without which CUDA would number the devices by speed, and not as the
    management library does.

    Args:
        nvml: the management library; ``pynvml`` by default.
        visible: the value of ``CUDA_VISIBLE_DEVICES``; by default this process's, which may have none.
    """
    if nvml is None:
        import pynvml  # noqa: PLC0415 - needed by few verbs, and quick ones must stay quick

        nvml = pynvml
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - a driver's library that cannot be loaded or started drives no device
        return Accelerators()
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return Accelerators(tuple(_accelerator(nvml, each) for each in device_handles(nvml, visible)), driver)
    except nvml.NVMLError:
        return Accelerators()
    finally:
        nvml.nvmlShutdown()


def device_handles(nvml: NvmlFunctions, visible: str | None) -> list[Any]:
    """Return the management library's handles of the CUDA devices that a process sees, in its order.

    Where a device is divided (MIG), a process sees one instance and nothing else: the one that is named, or the first.

    Args:
        nvml: the management library, which has been started.
        visible: the value of ``CUDA_VISIBLE_DEVICES``; None if it is not set.

    Raises the library's ``NVMLError``.
    """
    if visible is not None and visible.startswith("MIG-"):
        return [nvml.nvmlDeviceGetHandleByUUID(visible.split(",")[0].strip())]
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if visible is not None:
        uuids = [_text(_ask(nvml, "nvmlDeviceGetUUID", handle) or "") for handle in handles]
        handles = [handles[index] for index in visible_devices(visible, uuids)]
    divided = [handle for handle in handles if (_ask(nvml, "nvmlDeviceGetMigMode", handle) or (0,))[0]]
    return list(_instances(nvml, divided))[:1] if divided else handles


def _instances(nvml: NvmlFunctions, divided: list[Any]) -> Iterator[Any]:
    for handle in divided:
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(nvml.NVMLError):  # there may be fewer than there can be
                yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


def _ask(nvml: NvmlFunctions, question: str, handle: Any) -> Any:  # noqa: ANN401 - the library's
    try:
        return getattr(nvml, question)(handle)
    except (nvml.NVMLError, AttributeError):  # a device, or an old library, without an answer
        return None


def _accelerator(nvml: NvmlFunctions, handle: Any) -> Accelerator:  # noqa: ANN401 - the library's
    def ask(question: str) -> Any:  # noqa: ANN401
        return _ask(nvml, question, handle)

    capability, memory = ask("nvmlDeviceGetCudaComputeCapability"), ask("nvmlDeviceGetMemoryInfo")
    bus = ask("nvmlDeviceGetPciInfo")
    return Accelerator(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(ask("nvmlDeviceGetUUID") or ""),
        capability=None if capability is None else tuple(capability),
        memory_bytes=None if memory is None else float(memory.total),
        bus_address=None if bus is None else _text(bus.busId),
    )


def _text(value: str | bytes) -> str:
    """Old versions of the management library's module return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def data_sheet_flop_per_s(name: str, precision: str) -> float | None:
    """Return FLOP/s of dense products at a precision; None of a device or a precision that no sheet here has.

    Args:
        name: of a device, as its driver gives it.
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.

    >>> data_sheet_flop_per_s("NVIDIA A100-SXM4-40GB", "bf16")
    312000000000000.0
    """
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if _PART in words:
        return None
    fitting = (each for each in _sheets() if words.issuperset(each["words"]) and words.isdisjoint(each["without"]))
    found: dict[str, Any] | None = next(fitting, None)
    return None if found is None else found["flop_per_s"].get(precision)


@cache
def _sheets() -> list[dict[str, Any]]:
    content = tomllib.loads(files("steptime.catalog").joinpath("device_peaks.toml").read_text("utf-8"))
    return [{"without": [], **each} for each in content["device"]]


class CudaBuild(BaseModel):
    """One ``[[cuda]]`` of a ``framework.toml``: an environment with the framework's build for CUDA devices."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    requirements: str
    """A file ``requirements-cuda*.txt`` in the framework's folder; the environment is named after it."""
    toolkit: str
    """The CUDA toolkit that the build was made with, as ``13.0``."""
    driver: str
    """The oldest driver that the toolkit runs with, as ``580.65.06``."""
    oldest: str
    """The lowest compute capability that the build has code for, as ``7.5``."""
    newest: str | None = None
    """The highest one, where the build holds machine code alone, or its libraries do; None if a driver compiles
    intermediate code (PTX) for later devices."""
    why_not_newer: str = ""
    """What limits ``newest``."""
    compiled_from: str | None = None
    """The lowest compute capability for which the build has intermediate code alone, up to ``newest``."""
    compiling_driver: str = ""
    """The oldest driver that compiles this code: minor versions of a toolkit are compatible in machine code only."""
    python: list[str] = Field(default_factory=list)
    """Python versions of the build; the framework's own where none is named."""
    verify: str = ""
    """Python code that fails where the environment does not work; it trains on a device where there is one."""
    finish: list[str] = Field(default_factory=list)
    """As ``finish`` of the manifest."""

    @property
    def suffix(self) -> str:
        """The suffix of the environment's name among the framework's environments, as ``-cuda``."""
        return self.requirements.removeprefix("requirements").removesuffix(".txt")

    def why_not(self, accelerators: Accelerators) -> str | None:
        """Say why the build cannot run on these devices; None if it can, or where there are none to ask."""
        if accelerators.driver is not None and version_of(accelerators.driver) < version_of(self.driver):
            return (
                f"CUDA {self.toolkit} needs the driver {self.driver} or newer, and {accelerators.place} has "
                f"{accelerators.driver}"
            )
        capabilities = accelerators.capabilities
        is_compiled = self.compiled_from and any(each >= version_of(self.compiled_from) for each in capabilities)
        if is_compiled and accelerators.driver and version_of(accelerators.driver) < version_of(self.compiling_driver):
            return (
                f"from compute capability {self.compiled_from} on its code is compiled by the driver, which must be "
                f"{self.compiling_driver} or newer, and {accelerators.place} has {accelerators.driver}"
            )
        if any(each < version_of(self.oldest) for each in capabilities):
            return (
                f"the build for CUDA {self.toolkit} has code from compute capability {self.oldest} on, and a device "
                f"here has {_named_text(min(capabilities))}"
            )
        if self.newest and any(each > version_of(self.newest) for each in capabilities):
            return (
                f"the build for CUDA {self.toolkit} runs up to compute capability {self.newest}, and a device here has "
                f"{_named_text(max(capabilities))}: {self.why_not_newer}"
            )
        return None


def environment_parts(name: str) -> tuple[str, Literal["cpu", "cuda"]]:
    """Return the framework and the device of an environment by its name, as ``pytorch-cuda12`` or ``pytorch-dali``.

    The name of a framework has no hyphen; the suffix of a build for CUDA has the device.
    """
    framework, _, suffix = name.partition("-")
    return framework, "cuda" if suffix.startswith("cuda") else "cpu"


def _named_text(version: Version) -> str:
    return ".".join(map(str, version))
