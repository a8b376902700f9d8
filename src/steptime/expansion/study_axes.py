"""The axes of a study, and every combination of their values, possible or not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from steptime.catalog.choices import AUTO, NATIVE, OWN, SINGLE, SYNTHETIC, strategy_named
from steptime.catalog.manifest import Manifest
from steptime.catalog.options import OptionValue, Tuning
from steptime.expansion.combinations import Combination, ExpansionContext
from steptime.study.study import (
    AXES,
    TRAIN_AXES,
    Inclusion,
    Study,
    named_axes,
    variables_of,
)
from steptime.study.training import TrainChoice, Training
from steptime.study.workload_choice import LoaderChoice, WorkloadChoice

ALL = "all"
_WITH_RULES = ("workloads", "batch_per_worker", "global_batch", "options", "environment_variables")
PLAIN_AXES = tuple(axis.name for axis in AXES if axis.name not in (*_WITH_RULES, *TRAIN_AXES))
"""The axes of which a study's own values are all, or an inclusion's instead of them."""
_OUTER = ("loaders", "precision", "device", "workers", "frameworks")
"""The axes that divide comparisons, outermost first."""
_INNER = tuple(axis for axis in AXES if axis.as_given and axis.name not in _OUTER)


class StudyAxes:
    """The axes of a study, or of one item of its ``include``."""

    def __init__(self, study: Study, inclusion: Inclusion | None) -> None:
        named = named_axes(inclusion) if inclusion else {}
        self._values: dict[str, Any] = {**{axis: getattr(study, axis) for axis in PLAIN_AXES}, **named}
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
        for workload in self._workloads:
            batches = self._batches or _batches(workload) or self._study_batches
            for batch, *rest in product(batches, *(self._values[axis] for axis in _OUTER)):
                for each in self._of_framework(workload, batch, tuple(rest), context):
                    for *values, training in product(*(self._values[axis.name] for axis in _INNER), self._trainings):
                        given = {axis.field: value for axis, value in zip(_INNER, values, strict=True)}
                        yield replace(each, given={**each.given, **given}, training=training)

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
            helpers = [0] if name in (SYNTHETIC.name, OWN.name) else loader.processes
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
                    workers=workers,
                    servers=count,
                    server_placement=placement,
                    batch=batch[0],
                    batch_is_global=batch[1],
                    given={"precision": precision},
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
    if workload.module:
        return OWN.name
    if loader.name != AUTO:
        return loader.name
    return NATIVE.name if workload.dataset else SYNTHETIC.name
