"""The builds of a framework for CUDA devices: what is installed, and on which drivers and devices it runs.

Which architectures a wheel holds code for was read off the wheel itself (``benchmarks/gpu/wheel_architectures.py``),
which driver a toolkit needs off NVIDIA's release notes; docs/gpu.md has both tables.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from steptime.catalog.accelerators import Accelerators, Version, version_of


class CudaBuild(BaseModel):
    """One ``[[cuda]]`` of a ``framework.toml``: an environment with the framework's build for CUDA devices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
                f"here has {_text(min(capabilities))}"
            )
        if self.newest and any(each > version_of(self.newest) for each in capabilities):
            return (
                f"the build for CUDA {self.toolkit} runs up to compute capability {self.newest}, and a device here has "
                f"{_text(max(capabilities))}: {self.why_not_newer}"
            )
        return None


def environment_parts(name: str) -> tuple[str, Literal["cpu", "cuda"]]:
    """Return the framework and the device of an environment by its name, as ``pytorch-cuda12`` or ``pytorch-dali``.

    The name of a framework has no hyphen; the suffix of a build for CUDA has the device.
    """
    framework, _, suffix = name.partition("-")
    return framework, "cuda" if suffix.startswith("cuda") else "cpu"


def _text(version: Version) -> str:
    return ".".join(map(str, version))
