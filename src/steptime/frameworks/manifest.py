"""What a framework can do, as its room's ``framework.toml`` says."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

OptionValue = bool | int | float | str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StrategySupport(_Strict):
    """How a framework runs one strategy: who must be started and by which launcher."""

    launcher: Literal["local", "mpi"] = "local"
    min_workers: int = 1
    max_workers: int | None = None
    scheduler: bool = False
    """Whether it has a scheduler process."""


class Option(_Strict):
    """A setting of the framework that a study may vary."""

    help: str
    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    choices: list[OptionValue] = Field(default_factory=list)
    launchers: dict[str, Literal["local", "mpi"]] = Field(default_factory=dict)
    """The launcher that a value needs, where it is not the strategy's own."""
    strategies: list[str] = Field(default_factory=list)
    """Where the option means something; empty means everywhere."""


class BackEndSupport(_Strict):
    """A back end of communication, as the framework uses it, for the message benchmark (worker/back_end.py)."""

    summary: str
    strategy: str
    """Whose processes it needs: launcher, servers, scheduler."""
    operations: list[Literal["allreduce", "push_pull", "incast"]]
    options: dict[str, OptionValue] = Field(default_factory=dict)
    """Values of the room's options that choose this back end, where they are not the defaults."""
    device: Literal["cpu", "cuda"] = "cpu"


class Manifest(_Strict):
    """One ``framework.toml``."""

    name: str
    folder: Path
    title: str
    distribution: str
    """The distribution whose version is the framework's version."""
    libraries: list[str] = Field(default_factory=list)
    """The folders of ``steptime/libraries`` whose code the adapter imports; a run folder gets these and no others."""
    python: list[str]
    """Python versions it runs on, preferred first, as ``3.11``."""
    environment: Literal["own", "core"] = "own"
    """``core`` runs with steptime's own interpreter, which needs nothing installed."""
    devices: list[Literal["cpu", "cuda"]] = ["cpu"]
    """What the framework can train on, with an interpreter that was built for it."""
    own_devices: list[Literal["cpu", "cuda"]] = ["cpu"]
    """What it can train on in the environment that steptime makes from the room's requirements."""
    precisions: list[Literal["fp32", "bf16"]] = ["fp32"]
    loaders: list[str] = ["synthetic"]
    verify: str = ""
    """Python code that fails where the environment does not work; run after the installation."""
    finish: list[str] = Field(default_factory=list)
    """A program (its path within the room) that completes the environment with what pip cannot install, and its
    arguments; see docs/extending.md."""
    interpreter: str = "bin/python"
    """The interpreter within the environment's folder, where ``finish`` makes one of its own."""
    notes: list[str] = Field(default_factory=list)
    """Facts that a user of the framework should see beside its results."""
    strategies: dict[str, StrategySupport]
    options: dict[str, Option] = Field(default_factory=dict)
    back_ends: dict[str, BackEndSupport] = Field(default_factory=dict)
    """Back ends that the message benchmark can time, by names that no other room uses."""

    @property
    def finish_command(self) -> list[str]:
        """``finish`` with the whole path of its program."""
        return [str((self.folder / self.finish[0]).resolve()), *self.finish[1:]] if self.finish else []

    @property
    def requirements(self) -> Path:
        """The requirements file of the room."""
        return self.folder / "requirements.txt"

    def launcher_for(self, strategy: str, options: Mapping[str, OptionValue]) -> str:
        """The launcher that starts ``strategy`` with ``options``: an option's own, or else the strategy's."""
        needed = (self.options[name].launchers.get(str(value)) for name, value in options.items())
        return next(filter(None, needed), self.strategies[strategy].launcher)

    def options_for(self, strategy: str) -> dict[str, Option]:
        """The options that mean something under ``strategy``."""
        return {
            name: option
            for name, option in self.options.items()
            if not option.strategies or strategy in option.strategies
        }


@cache
def load_manifests(root: Path = Path(__file__).parent) -> dict[str, Manifest]:
    """Return the manifest of every room, by name; a room is a folder that holds a ``framework.toml``."""
    return {path.parent.name: load_manifest(path) for path in sorted(root.glob("*/framework.toml"))}


def load_manifest(path: Path) -> Manifest:
    """Read one ``framework.toml``."""
    with path.open("rb") as file:
        data = tomllib.load(file)
    return Manifest.model_validate({**data, "name": path.parent.name, "folder": path.parent})
