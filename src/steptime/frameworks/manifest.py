"""The manifests: what every framework can do, as the ``framework.toml`` in its folder says."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from steptime.errors import PluginError, UsageError, choices_message
from steptime.plugins import OWN, Plugin, own_and_plugins

OptionValue = bool | int | float | str
FILE = "framework.toml"
_FRAMEWORKS = Path(__file__).parent


class _ManifestForm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StrategySupport(_ManifestForm):
    """How a framework runs one strategy: who must be started and by which launcher."""

    launcher: Literal["local", "mpi"] = "local"
    min_workers: int = 1
    max_workers: int | None = None
    scheduler: bool = False
    """Whether it has a scheduler process."""


class Option(_ManifestForm):
    """A setting of the framework that a study may vary."""

    help: str
    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    choices: list[OptionValue] = Field(default_factory=list)
    launchers: dict[str, Literal["local", "mpi"]] = Field(default_factory=dict)
    """The launcher that a value needs, where it is not the strategy's own."""
    strategies: list[str] = Field(default_factory=list)
    """Where the option means something; empty means everywhere."""


class BackEndSupport(_ManifestForm):
    """A back end of communication, as the framework uses it, for the message benchmark (worker/back_end.py)."""

    summary: str
    strategy: str
    """The strategy whose launcher, servers and scheduler it needs."""
    operations: list[Literal["allreduce", "push_pull", "incast"]]
    options: dict[str, OptionValue] = Field(default_factory=dict)
    """Values of the framework's options that choose this back end, where they are not the defaults."""
    device: Literal["cpu", "cuda"] = "cpu"


class Manifest(_ManifestForm):
    """One ``framework.toml``."""

    name: str
    folder: Path
    package: str
    """The import name of the folder: ``steptime.frameworks.NAME``, or the package that a plug-in names."""
    provider: str = OWN
    """Who brings the framework: ``steptime``, or another distribution with its version."""
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
    """What it can train on in the environment that steptime makes from the framework's requirements."""
    precisions: list[Literal["fp32", "bf16"]] = ["fp32"]
    loaders: list[str] = ["synthetic"]
    verify: str = ""
    """Python code that fails where the environment does not work; run after the installation."""
    finish: list[str] = Field(default_factory=list)
    """A program (its path within the folder) that completes the environment with what pip cannot install, and its
    arguments; see docs/extending.md."""
    interpreter: str = "bin/python"
    """The interpreter within the environment's folder, where ``finish`` makes one of its own."""
    notes: list[str] = Field(default_factory=list)
    """Facts that a user of the framework should see beside its results."""
    strategies: dict[str, StrategySupport]
    options: dict[str, Option] = Field(default_factory=dict)
    back_ends: dict[str, BackEndSupport] = Field(default_factory=dict)
    """Back ends that the message benchmark can time, by names that no other framework uses."""

    @property
    def finish_command(self) -> list[str]:
        """``finish`` with the whole path of its program."""
        return [str((self.folder / self.finish[0]).resolve()), *self.finish[1:]] if self.finish else []

    @property
    def requirements(self) -> Path:
        """The file of what to install."""
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
def load_manifests(root: Path = _FRAMEWORKS) -> dict[str, Manifest]:
    """Return the manifest of every framework by name: steptime's own first, then those of plug-ins that can be used.

    Those that cannot are in ``broken_frameworks``. Raises PluginError when a name is given twice.
    """
    own = {path.parent.name: load_manifest(path) for path in sorted(root.glob(f"*/{FILE}"))}
    return own | {name: found for name, found in _of_plugins(root).items() if isinstance(found, Manifest)}


def broken_frameworks() -> dict[str, str]:
    """Return why a framework of a plug-in cannot be used, by its name."""
    return {name: str(found) for name, found in _of_plugins(_FRAMEWORKS).items() if isinstance(found, PluginError)}


def manifest_named(name: str) -> Manifest:
    """Return one framework's manifest.

    Raises UsageError with the choices for an unknown name, PluginError with the cause for a plug-in that is broken.
    """
    manifests = load_manifests()
    if name in manifests:
        return manifests[name]
    broken = _of_plugins(_FRAMEWORKS).get(name)
    raise broken if isinstance(broken, PluginError) else UsageError(choices_message("framework", name, manifests))


def load_manifest(path: Path, plugin: Plugin | None = None) -> Manifest:
    """Read one ``framework.toml``.

    Args:
        path: of the file.
        plugin: that names the file's folder; None for one of steptime's own.

    Raises OSError, ValueError (of TOML, or with every wrong key).
    """
    with path.open("rb") as file:
        data = tomllib.load(file)
    name = plugin.name if plugin else path.parent.name
    package = plugin.value if plugin else f"{OWN}.frameworks.{name}"
    provider = plugin.provider if plugin else OWN
    return Manifest.model_validate(
        {**data, "name": name, "folder": path.parent, "package": package, "provider": provider}
    )


@cache
def _of_plugins(root: Path) -> dict[str, Manifest | PluginError]:
    own = [path.parent.name for path in root.glob(f"*/{FILE}")]
    return {name: _of_plugin(plugin) for name, plugin in own_and_plugins("framework", own).items()}


def _of_plugin(plugin: Plugin) -> Manifest | PluginError:
    if not plugin.name.isidentifier():
        return plugin.error("the name of a framework names a Python package, so that it has no '-'")
    try:
        path = plugin.folder() / FILE
        return load_manifest(path, plugin)
    except PluginError as error:
        return error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return plugin.error(f"{path}: {wrong}")
    except (OSError, ValueError) as error:
        return plugin.error(f"{path}: {error}")
