"""The manifests: what every framework can do, by the ``framework.toml`` in its folder."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from steptime.catalog.accelerators import Accelerators, CudaBuild
from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.optimizer import OptimizerName
from steptime.catalog.options import Option, OptionValue, Precision, Tuning
from steptime.catalog.plugins import OWN, Plugin, own_and_plugins
from steptime.errors import PluginError, UsageError, choices_message

FILE = "framework.toml"
TrainingSetting = Literal["decayed", "clip_norm", "accumulation"]
"""What an adapter of older versions knows nothing of: weights that do not decay, gradients that are clipped, and steps
of several micro-batches."""
_FRAMEWORKS = Path(__file__).parents[1] / "frameworks"


class _ManifestForm(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)


class StrategySupport(_ManifestForm):
    """How a framework runs one strategy: who must be started and by which launcher."""

    launcher: Literal["local", "mpi"] = "local"
    min_workers: int = 1
    max_workers: int | None = None
    scheduler: bool = False
    """Whether it has a scheduler process."""
    without_precisions: list[Precision] = Field(default_factory=list)
    """Precisions of the framework that the strategy does not have."""
    without_optimizers: list[OptimizerName] = Field(default_factory=list)
    """Optimizers of the framework that the strategy does not have."""
    without_training_settings: dict[TrainingSetting, str] = Field(default_factory=dict)
    """Why the strategy lacks a setting of training that the framework has."""
    without_own_modules: str = ""
    """Why the strategy trains no module of a user, though the framework does."""
    learning: bool = True
    """Whether the framework's sessions can train with the strategy until it is over; means nothing where the manifest
    does not say ``learning``."""
    implementation: str = ""
    """Who implements the strategy where the framework does not, as "steptime's exchange over MPI". A strategy that
    says so is marked wherever it is shown, and takes no part in claims about the framework."""


class TunedOptions(_ManifestForm):
    """The table ``[tuned]``: the values of options in the tier ``tuned``, where they are not the defaults.

    The overrides of a device take precedence over the table's own values, those of a strategy over both.
    """

    options: dict[str, OptionValue] = Field(default_factory=dict)
    """The keys of the table itself."""
    strategies: dict[str, dict[str, OptionValue]] = Field(default_factory=dict)
    devices: dict[str, dict[str, OptionValue]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _options_apart(cls, table: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if not isinstance(table, dict):
            return table
        overrides = {key: table[key] for key in ("strategies", "devices") if key in table}
        return {"options": {key: value for key, value in table.items() if key not in overrides}, **overrides}


class LoaderEnvironment(_ManifestForm):
    """A table ``[loader_environments.NAME]``: the environment of a loader whose packages only its users install."""

    requirements: str
    """A file ``requirements-NAME.txt`` in the framework's folder; the environment is named after it."""
    cuda_requirements: dict[str, str] = Field(default_factory=dict)
    """Of the framework's builds for CUDA, by their own requirements files."""
    verify: str = ""
    """Python code that fails where the loader does not work; run after that of the framework."""


class BackEndSupport(_ManifestForm):
    """A back end of communication, as the framework uses it, for the message benchmark (worker/framework.py)."""

    summary: str
    strategy: str
    """The strategy whose launcher, servers and scheduler it needs."""
    operations: list[Literal["allreduce", "allreduce_queued", "push_pull", "incast"]]
    options: dict[str, OptionValue] = Field(default_factory=dict)
    """Values of the framework's options that choose this back end, where they are not the defaults."""
    device: Literal["cpu", "cuda"] = "cpu"


class PreloadingFacts(_ManifestForm):
    """The table ``[preloading]``: how a process imports the framework of which launches fork their processes."""

    imports: list[str] = Field(default_factory=list)
    """Modules in the order of their import, ``module:function`` where a function is called then; no thread is started
    and no device opened. Empty where that is not possible, so that each process of a check imports the framework."""
    imported_again: list[str] = Field(default_factory=list)
    """Modules that a server or scheduler must import itself, because their import is what serves."""
    whatever_options: bool = False
    """Whether no option acts when the framework is imported, so that processes are forked with any."""
    timed: bool = False
    """Whether timed launches are forked too: it saves time, and steps were measured to take as long
    (docs/decisions/0020-short-runs.md)."""


class ContractFacts(_ManifestForm):
    """The table ``[contract]``: what tests of the framework must know before they start it (worker/framework.py)."""

    threads: Literal["asked", "openblas", "cores"] = "asked"
    """How many compute threads a worker has: as many as the job asks for; at most one for each core, where it computes
    with OpenBLAS; at most one for each core in every thread pool."""
    loaders_of: str = ""
    """The framework whose loaders these are, so that the slowest tests of loaders run once."""
    without_image_folders: str = ""
    """Why the framework's loaders read no folders of images, where they read arrays only."""
    without_loader_helpers: str = ""
    """Why the loader has no helpers, whatever the study asks for."""
    without_faults: dict[str, str] = Field(default_factory=dict)
    """Why a fault of ``worker/framework.py`` cannot exist in the framework, by the fault's name."""
    without_stages: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Why a step cannot be run without one of its stages, by strategy and by the stage of ``AblatedStep`` that is
    left out."""


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
    own_modules: Literal["torch", "jax", "keras"] | None = None
    """Of which kind the modules of users are that it trains; None if it trains none."""
    environment: Literal["own", "core"] = "own"
    """``core`` runs with steptime's own interpreter, which needs nothing installed."""
    devices: list[Literal["cpu", "cuda"]] = ["cpu"]
    """What the framework can train on, with an interpreter that was built for it."""
    cuda: list[CudaBuild] = Field(default_factory=list)
    """The builds for CUDA devices, newest first; steptime makes an environment of the first that runs here."""
    without_cuda: str = ""
    """Why steptime makes no environment for CUDA devices, where it makes none."""
    precisions: list[Precision] = ["fp32"]
    """On processors."""
    cuda_precisions: list[Precision] = ["fp32"]
    """On CUDA devices."""
    without_precisions: dict[Precision, str] = Field(default_factory=dict)
    """Why the framework lacks a precision that others have, by precision."""
    without_transformers: str = ""
    """Why the framework cannot compute the layers of transformers, where it cannot."""
    optimizers: list[OptimizerName] = ["sgd"]
    training_settings: list[TrainingSetting] = []
    """Those that its sessions obey."""
    without_training_settings: dict[TrainingSetting, str] = Field(default_factory=dict)
    """Why they do not obey another."""
    learning: bool = False
    """Whether sessions have ``set_learning_rate``, ``outputs`` and ``state``, so that accuracy can be measured."""
    adam_epsilon: Literal["corrected", "uncorrected"] = "corrected"
    """The second moment whose root epsilon is added to, of adam and adamw: corrected for its start at zero, as Kingma
    and Ba write the algorithm, or not, with the correction in the learning rate, as they write its quicker form."""
    rate_in_velocity: bool = False
    """Whether momentum sums up gradients times the learning rate of their step, so that a changed rate does not act on
    earlier gradients: v = m v + r g, w = w - v."""
    loaders: list[str] = [SYNTHETIC.name]
    loader_environments: dict[str, LoaderEnvironment] = Field(default_factory=dict)
    """By loader, where it does not run in the framework's own environment."""
    without_loaders: dict[str, str] = Field(default_factory=dict)
    """Why the framework lacks a loader that others have, by loader."""
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
    """The defaults are the tier ``documented``: what the framework's own guide and official example do."""
    tuned: TunedOptions = TunedOptions()
    """The tier ``tuned``: the best that an expert gets without changing what is computed."""
    back_ends: dict[str, BackEndSupport] = Field(default_factory=dict)
    """Back ends that the message benchmark can time, by names that no other framework uses."""
    preloading: PreloadingFacts = PreloadingFacts()
    contract: ContractFacts = ContractFacts()

    @model_validator(mode="after")
    def _tuned_options_exist(self) -> "Manifest":
        wrong = list(_tuned_mistakes(self))
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def cuda_build(self, accelerators: Accelerators) -> CudaBuild | None:
        """Return the first build that runs on these devices; the first of all where there are no devices to ask."""
        return next((each for each in self.cuda if each.why_not(accelerators) is None), None)

    def no_cuda_reason(self, accelerators: Accelerators) -> str:
        """Say why no environment that steptime makes can train on these devices."""
        reasons = "; ".join(filter(None, (each.why_not(accelerators) for each in self.cuda)))
        why = reasons or self.without_cuda or "none is known"
        return f"{self.title} has no CUDA build for {accelerators.place}: {why}"

    def precisions_on(self, device: str) -> list[Precision]:
        """Return the precisions that the framework has on a device."""
        return self.cuda_precisions if device == "cuda" else self.precisions

    def without_training_setting(self, setting: TrainingSetting, strategy: str) -> str | None:
        """Say why a strategy does not obey a setting of training; None if it does."""
        if setting not in self.training_settings:
            because = f": {why}" if (why := self.without_training_settings.get(setting)) else ""
            return f"no setting {setting!r} of training{because}"
        why = self.strategies[strategy].without_training_settings.get(setting)
        return f"{strategy!r} has no setting {setting!r} of training: {why}" if why else None

    @property
    def implementations(self) -> dict[str, str]:
        """Who implements those strategies that the framework itself does not, by strategy."""
        found = {strategy: support.implementation for strategy, support in self.strategies.items()}
        return {strategy: implementation for strategy, implementation in found.items() if implementation}

    def program_of(self, finish: Sequence[str]) -> list[str]:
        """Return ``finish``, of the manifest or of a build for CUDA, with the whole path of its program."""
        return [str((self.folder / finish[0]).resolve()), *finish[1:]] if finish else []

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

    def altering(self, options: Mapping[str, OptionValue]) -> str | None:
        """Return the options by which something else is computed on purpose, as text; None if there are none."""
        return _in_words({name: value for name, value in options.items() if value in self.options[name].alters})

    def unranked(self, options: Mapping[str, OptionValue]) -> str | None:
        """Say why trials with ``options`` are not ranked; None if they are."""
        altering = self.altering(options)
        if altering:
            return f"{altering} changes what is computed, which the equivalence check cannot hold"
        rounding = _in_words({name: value for name, value in options.items() if value in self.options[name].rounds})
        return f"{rounding} changes what is computed: gradients are rounded before they are sent" if rounding else None

    def tier_options(self, tuning: Tuning, strategy: str, device: str) -> dict[str, OptionValue]:
        """Return every option that means something under ``strategy``, with its value in a tier on ``device``."""
        tuned: dict[str, OptionValue] = {}
        if tuning == "tuned":
            of_device, of_strategy = self.tuned.devices.get(device, {}), self.tuned.strategies.get(strategy, {})
            tuned = {**self.tuned.options, **of_device, **of_strategy}
        return {
            name: option.typed(tuned.get(name, option.default)) for name, option in self.options_for(strategy).items()
        }


def _in_words(options: Mapping[str, OptionValue]) -> str | None:
    return ", ".join(f"{name}: {str(value).lower()}" for name, value in options.items()) or None


def _tuned_mistakes(manifest: Manifest) -> Iterator[str]:
    """Yield every key of ``[tuned]`` that means nothing, and every value that its option cannot have."""
    tuned = manifest.tuned
    yield from _option_mistakes(manifest, "[tuned]", tuned.options)
    for name, value in tuned.options.items():
        if name in manifest.options and value == manifest.options[name].default:
            yield f"[tuned] {name}: {value!r} is the option's default; leave it out"
    for strategy, options in tuned.strategies.items():
        table = f"[tuned.strategies.{strategy}]"
        if strategy not in manifest.strategies:
            yield f"{table}: {choices_message('strategy', strategy, manifest.strategies)}"
            continue
        yield from _option_mistakes(manifest, table, options)
        applying = manifest.options_for(strategy)
        for name in options:
            if name in manifest.options and name not in applying:
                yield f"{table} {name}: the option means nothing under {strategy!r}"
    for device, options in tuned.devices.items():
        table = f"[tuned.devices.{device}]"
        if device not in manifest.devices:
            yield f"{table}: {choices_message('device', device, manifest.devices)}"
            continue
        yield from _option_mistakes(manifest, table, options)


def _option_mistakes(manifest: Manifest, table: str, options: Mapping[str, OptionValue]) -> Iterator[str]:
    for name, value in options.items():
        if name not in manifest.options:
            yield f"{table}: {choices_message('option', name, manifest.options)}"
            continue
        mistake = manifest.options[name].mistake(name, value)
        if mistake:
            yield f"{table}: {mistake}"
        if value in (*manifest.options[name].rounds, *manifest.options[name].alters):
            yield f"{table} {name}: {value!r} changes what is computed, which the tier may not"


@cache
def load_manifests(root: Path = _FRAMEWORKS) -> dict[str, Manifest]:
    """Return the manifest of every framework by name: steptime's own first, then those of plug-ins that can be used.

    Those that cannot are in ``broken_frameworks``. Raises PluginError when a name is given twice.
    """
    own = {path.parent.name: _own_manifest(path) for path in sorted(root.glob(f"*/{FILE}"))}
    return own | {name: found for name, found in _of_plugins(root).items() if isinstance(found, Manifest)}


def find_manifest(name: str) -> Manifest | None:
    """Return the manifest of one framework, and read no other of steptime's own; None for one that is not usable."""
    path = _FRAMEWORKS / name / FILE
    is_own = name.isidentifier() and path.is_file()  # a name in records may be any text
    return _own_manifest(path) if is_own else load_manifests().get(name)


@cache
def _own_manifest(path: Path) -> Manifest:
    return load_manifest(path)


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
