"""The expansion of a study: a trial for every combination of its axes, and the reasons for those left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from steptime.clusters.site import Site
from steptime.errors import StudyError
from steptime.frameworks.manifest import Manifest
from steptime.measurements.accelerators import Accelerators
from steptime.runner.combinations import Combination, ExpansionContext, can_use_cuda, why_impossible
from steptime.runner.site import launcher_on
from steptime.runner.workload_shapes import DatasetFacts, WorkloadShapes
from steptime.study.loaders import NATIVE, SYNTHETIC
from steptime.study.strategies import SINGLE, strategy_named
from steptime.study.study import (
    TRAIN_AXES,
    Exclusion,
    Inclusion,
    LoaderChoice,
    Study,
    WorkloadChoice,
    named_axes,
    variables_of,
)
from steptime.study.training import TrainChoice, Training
from steptime.study.trial import OptionValue, Trial, Tuning

AUTO = "auto"
ALL = "all"


@dataclass(frozen=True)
class Skipped:
    """A combination that the study asks for and that cannot be."""

    combination: dict[str, Any]
    """Its axes."""
    reason: str


@dataclass(frozen=True)
class Expansion:
    """What a study comes to on this machine."""

    trials: list[Trial]
    """Different ones, in the order of the study's axes; trials that are compared stand together."""
    skipped: list[Skipped]
    tiers: Mapping[str, tuple[Tuning, ...]]
    """The tiers in which a trial stands, by its id: in both, where ``tuned`` changes nothing."""


def expand(
    study: Study,
    manifests: Mapping[str, Manifest],
    datasets: Mapping[str, DatasetFacts],
    accelerators: Accelerators,
    site: Site | None = None,
) -> Expansion:
    """Return all trials of ``study``.

    Args:
        study: checked against the same manifests.
        manifests: of every framework that the study names.
        datasets: facts of the datasets, by the name or folder that the study gives.
        accelerators: of this machine, or of the site's hosts, as far as they are known.
        site: the hosts that launches use; None where they use this one.
    """
    own = frozenset(name for name, chosen in study.environments.items() if chosen.kind == "existing")
    context = ExpansionContext(
        manifests,
        WorkloadShapes(datasets),
        accelerators,
        own,
        launcher_on(site, study.launcher),
        study.threads_per_worker,
        None if study.cores_per_worker == study.threads_per_worker else study.cores_per_worker,
        study.seed,
        site,
        containers={name: tuple(each.container) for name, each in study.environments.items() if each.container},
    )
    context = replace(context, automatic_device=automatic_device(study, context))
    trials: dict[str, Trial] = {}
    tiers: dict[str, dict[Tuning, None]] = {}
    skipped: dict[str, Skipped] = {}
    for combination in wanted(study, context):
        reason = why_impossible(combination, context)
        if reason:
            axes = combination.to_json()
            skipped.setdefault(repr((axes, reason)), Skipped(axes, reason))
        else:
            trial = combination.trial(context)
            same = trial.configuration
            if trial.tuning == "tuned":
                trials[same] = trial  # also where a study names the tuned values of options itself
            trials.setdefault(same, trial)
            tiers.setdefault(same, {})[combination.tuning] = None
    found = {trial.id: tuple(tiers[same]) for same, trial in trials.items()}
    return Expansion(list(trials.values()), list(skipped.values()), found)


def skipped_in_words(skipped: Iterable[Skipped]) -> list[str]:
    """Return one line per reason: the reason, and for each framework how many combinations it costs."""
    counts: dict[str, Counter[str]] = {}
    for skip in skipped:
        counts.setdefault(skip.reason, Counter())[skip.combination["framework"]] += 1
    return [
        f"{', '.join(f'{framework} ({count})' for framework, count in by_framework.items())}: {reason}"
        for reason, by_framework in counts.items()
    ]


def wanted(study: Study, context: ExpansionContext) -> Iterator[Combination]:
    """Yield every combination that the study asks for, possible or not: its axes without exclude, then include.

    Raises StudyError where they are more, or need more processes, than could ever be run.
    """
    count = processes = 0
    for inclusion in (None, *study.include):
        for combination in _Axes(study, inclusion).combinations(context):
            count += 1
            processes += combination.workers + combination.servers
            if count > _MOST or processes > _MOST_PROCESSES:
                raise StudyError(_too_many(study, count))
            if inclusion or not any(_matches(exclusion, combination) for exclusion in study.exclude):
                yield combination


_MOST = 5000
_MOST_PROCESSES = 20_000
"""Of all combinations together. A study of so many trials would run for a day at least."""


def _too_many(study: Study, count: int) -> str:
    longest = sorted(_PLAIN, key=lambda axis: -len(getattr(study, axis)))[:3]
    axes = ", ".join(f"{axis} ({len(getattr(study, axis))})" for axis in longest)
    return (
        f"{study.name}: its axes give more than {_MOST} combinations, or more than {_MOST_PROCESSES} processes in the "
        f"first {count} of them; make several studies of it. The axes with most values are {axes}"
    )


class _Axes:
    """The axes of a study, or of one item of its ``include``."""

    def __init__(self, study: Study, inclusion: Inclusion | None) -> None:
        named = named_axes(inclusion) if inclusion else {}
        self._values: dict[str, Any] = {**{axis: getattr(study, axis) for axis in _PLAIN}, **named}
        self._options: Mapping[str, Mapping[str, Sequence[OptionValue]]] = {**study.options, **named.get("options", {})}
        self._variables: Mapping[str, Any] = {**study.environment_variables, **named.get("environment_variables", {})}
        self._workloads: list[WorkloadChoice] = study.workloads
        if inclusion and inclusion.workloads is not None:
            self._workloads = [same for choice in inclusion.workloads for same in _as_listed(choice, study.workloads)]
        train = (inclusion.train if inclusion else None) or study.train
        self._trainings = list(_trainings(train, named)) if train else [None]
        self._cluster = (inclusion.cluster if inclusion else None) or study.cluster
        self._batches = _batches(inclusion)
        self._study_batches = _batches(study)

    def combinations(self, context: ExpansionContext) -> Iterator[Combination]:
        """Yield the product of the axes, those that divide comparisons outermost."""
        outer = ("loaders", "precision", "device", "workers", "frameworks")
        for workload in self._workloads:
            batches = self._batches or _batches(workload) or self._study_batches
            for batch, *rest in product(batches, *(self._values[axis] for axis in outer)):
                for each in self._of_framework(workload, batch, tuple(rest), context):
                    for optimizer, training in product(self._values["optimizer"], self._trainings):
                        yield replace(each, optimizer=optimizer, training=training)

    def _of_framework(
        self, workload: WorkloadChoice, batch: tuple[int, bool], rest: tuple[Any, ...], context: ExpansionContext
    ) -> Iterator[Combination]:
        loader, precision, device, workers, framework = rest
        manifest = context.manifests[framework]
        for strategy in self._strategies(manifest, workers):
            serving = strategy in manifest.strategies and strategy_named(strategy).servers
            servers = self._values["servers"] if serving else [0]
            placements = self._values["server_placement"] if serving else [None]
            chosen_device = context.automatic_device if device == AUTO else device
            tiers = product(self._option_sets(manifest, strategy), self._values["tuning"])
            variable_sets = list(self._variable_sets(framework))
            name = _loader_name(loader, workload)
            helpers = [0] if name == SYNTHETIC.name else loader.processes
            axes = product(servers, placements, helpers, tiers, variable_sets)
            for count, placement, processes, (chosen, tuning), variables in axes:
                options, documented = (
                    _options(manifest, strategy, tier, chosen_device, chosen) for tier in (tuning, "documented")
                )
                yield Combination(
                    workload=workload,
                    framework=framework,
                    strategy=strategy,
                    loader=name,
                    loader_processes=processes,
                    device=chosen_device,
                    precision=precision,
                    workers=workers,
                    servers=count,
                    server_placement=placement,
                    batch=batch[0],
                    batch_is_global=batch[1],
                    optimizer=self._values["optimizer"][0],
                    training=None,
                    tuning=tuning,
                    options=options,
                    documented_options={name: value for name, value in documented.items() if value != options[name]},
                    environment_variables=variables,
                    cluster=self._cluster,
                )

    def _strategies(self, manifest: Manifest, workers: int) -> list[str]:
        result: dict[str, None] = {}
        for name in self._values["strategies"]:
            result.update(dict.fromkeys(_named(name, manifest, workers)))
        return list(result)

    def _option_sets(self, manifest: Manifest, strategy: str) -> Iterator[dict[str, OptionValue]]:
        """Yield every choice of values for the options that the study names."""
        if strategy not in manifest.strategies:
            yield {}
            return
        chosen = self._options.get(manifest.name, {})
        varied = [name for name in chosen if name in manifest.options_for(strategy)]
        for values in product(*(chosen[name] for name in varied)):
            yield {name: manifest.options[name].typed(value) for name, value in zip(varied, values, strict=True)}

    def _variable_sets(self, framework: str) -> Iterator[dict[str, str]]:
        """Yield the combinations of the values of environment variables; a value None leaves its variable unset."""
        chosen = variables_of(framework, self._variables)
        for values in product(*chosen.values()):
            yield {name: value for name, value in zip(chosen, values, strict=True) if value is not None}


def _options(
    manifest: Manifest, strategy: str, tuning: Tuning, device: str, chosen: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return every option that means something under ``strategy``: as chosen, or as its tier has it."""
    if strategy not in manifest.strategies:
        return {}
    return {**manifest.tier_options(tuning, strategy, device), **chosen}


_PLAIN = (
    "frameworks",
    "strategies",
    "loaders",
    "workers",
    "servers",
    "server_placement",
    "precision",
    "device",
    "tuning",
    "optimizer",
)


def _trainings(train: TrainChoice, named: Mapping[str, Any]) -> Iterator[Training]:
    """Yield every training that a study asks for, with the axes ``named`` by an inclusion replaced."""
    schedules, rules, warmups = (named.get(axis, getattr(train, axis)) for axis in TRAIN_AXES)
    for schedule, rule, warmup in product(schedules, rules, warmups):
        yield Training(
            epochs=train.epochs,
            target_accuracy=train.target_accuracy,
            rate_schedule=schedule.rate_schedule(),
            scaling_rule=rule,
            base_batch=None if rule == "none" else train.base_batch,
            warmup_epochs=warmup,
            label_smoothing=train.label_smoothing,
        )


def _batches(source: Study | Inclusion | WorkloadChoice | None) -> list[tuple[int, bool]]:
    """Return batches, each with whether it is the global one."""
    if source is None:
        return []
    own, shared = source.batch_per_worker or [], source.global_batch or []
    return [(batch, False) for batch in own] + [(batch, True) for batch in shared]


def _as_listed(choice: WorkloadChoice, listed: Sequence[WorkloadChoice]) -> list[WorkloadChoice]:
    """A bare name means the study's workloads of that name, with the settings that they have there."""
    if choice.model_fields_set != {"name"}:
        return [choice]
    return [same for same in listed if same.name == choice.name] or [choice]


def _named(name: str, manifest: Manifest, workers: int) -> list[str]:
    if name == AUTO:
        return _automatic(manifest, workers)
    return _able(manifest, workers) if name == ALL else [name]


def _able(manifest: Manifest, workers: int) -> list[str]:
    """Return every strategy that so many workers can follow; one worker without the wrapping of others is `single`."""
    return [
        name
        for name, support in manifest.strategies.items()
        if support.min_workers <= workers
        and (support.max_workers is None or workers <= support.max_workers)
        and (workers == 1 or not strategy_named(name).single_baseline)
    ]


def _automatic(manifest: Manifest, workers: int) -> list[str]:
    if workers == 1:
        return [SINGLE.name]
    return [name for name in _able(manifest, workers) if strategy_named(name).exact] or [AUTO]


def _loader_name(loader: LoaderChoice, workload: WorkloadChoice) -> str:
    if loader.name != AUTO:
        return loader.name
    return NATIVE.name if workload.dataset else SYNTHETIC.name


def automatic_device(study: Study, context: ExpansionContext) -> Literal["cpu", "cuda"]:
    """Return what the device ``auto`` means in a study: one device for all frameworks, so that the race is one.

    CUDA where this machine, or each host of the site, has devices enough for the study's fewest workers, and any of its
    frameworks can use them; those that cannot are left out of the study, with their reason. The launchers that know no
    CUDA device mean the processor, and so does a site of which nobody says how many devices its hosts have.
    """
    inclusions = [named_axes(each) for each in study.include]
    frameworks = {*study.frameworks, *(name for axes in inclusions for name in axes.get("frameworks", ()))}
    workers = min([*study.workers, *(count for axes in inclusions for count in axes.get("workers", ()))])
    site, devices = context.site, len(context.accelerators)
    if site is not None:
        workers, devices = min(workers, site.workers_per_host), site.gpus_per_host or 0
    if study.launcher in {"emulated", "inline"} or not 0 < workers <= devices:
        return "cpu"
    return "cuda" if any(can_use_cuda(context.manifests[name], context) for name in frameworks) else "cpu"


def _matches(exclusion: Exclusion, combination: Combination) -> bool:
    """Whether the combination has one of the given values on every axis that the exclusion names."""
    values = {
        "frameworks": combination.framework,
        "strategies": combination.strategy,
        "workloads": combination.workload.name,
        "loaders": combination.loader,
        "workers": combination.workers,
        "servers": combination.servers,
        "server_placement": combination.server_placement,
        "batch_per_worker": combination.batch_per_worker,
        "global_batch": combination.batch_per_worker * combination.workers,
        "precision": combination.precision,
        "device": combination.device,
        "tuning": combination.tuning,
        "optimizer": combination.optimizer.name,
        "schedules": combination.training.rate_schedule.name if combination.training else None,
        "scaling_rule": combination.training.scaling_rule if combination.training else None,
        "warmup_epochs": combination.training.warmup_epochs if combination.training else None,
    }
    named = named_axes(exclusion)
    options = named.pop("options", None)
    if options is not None and not _settings_match(options.get(combination.framework, {}), combination.options):
        return False
    variables = named.pop("environment_variables", None)
    if variables is not None and not _settings_match(
        variables_of(combination.framework, variables), combination.environment_variables
    ):
        return False
    return all(values[axis] in chosen for axis, chosen in named.items())


def _settings_match(chosen: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> bool:
    """Whether all settings that an exclusion names, if it names any, have one of the values that it gives."""
    return bool(chosen) and all(settings.get(name) in values for name, values in chosen.items())
