"""The expansion of a study: a trial for every combination of its axes, and the reasons for those left out."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from steptime.catalog.accelerators import Accelerators
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.catalog.options import Tuning
from steptime.errors import StudyError
from steptime.expansion.combinations import Combination, DatasetFacts, ExpansionContext, WorkloadShapes
from steptime.expansion.impossible_combinations import can_use_cuda, why_impossible
from steptime.expansion.site import launcher_on
from steptime.expansion.study_axes import PLAIN_AXES, StudyAxes
from steptime.study.study import AXES, EnvironmentChoice, Exclusion, Study, named_axes, variables_of
from steptime.study.trial import Trial


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
    """Different ones, in the order of the study's axes; trials that are compared are together."""
    skipped: list[Skipped]
    tiers: Mapping[str, tuple[Tuning, ...]]
    """The tiers of a trial, by its id: in both, where ``tuned`` changes nothing."""
    without_effect: list[str]
    """Items of ``exclude`` that match no combination, as a sentence each."""


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
        site: the hosts that launches use; None if they use this one.
    """
    own = frozenset(name for name, chosen in study.environments.items() if chosen.kind == "existing")
    if any(each.kind == "existing" for each in study.named_environments.values()):
        own |= set(study.frameworks)
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
        containers=_containers(study.environments),
        named_containers=_containers(study.named_environments),
    )
    context = replace(context, automatic_device=automatic_device(study, context))
    trials: dict[str, Trial] = {}
    tiers: dict[str, dict[Tuning, None]] = {}
    skipped: dict[str, Skipped] = {}
    matching: set[int] = set()
    for combination in wanted(study, context, matching):
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
    idle = [
        f"exclude[{place}] matches no combination: {json.dumps(named_axes(each), default=str)}"
        for place, each in enumerate(study.exclude)
        if place not in matching
    ]
    return Expansion(list(trials.values()), list(skipped.values()), found, idle)


def _containers(environments: Mapping[str, EnvironmentChoice]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(each.container) for name, each in environments.items() if each.container}


def skipped_in_words(skipped: Iterable[Skipped]) -> list[str]:
    """Return one line per reason: the reason, and for each framework how many combinations it costs."""
    counts: dict[str, Counter[str]] = {}
    for skip in skipped:
        counts.setdefault(skip.reason, Counter())[skip.combination["framework"]] += 1
    return [
        f"{', '.join(f'{framework} ({count})' for framework, count in by_framework.items())}: {reason}"
        for reason, by_framework in counts.items()
    ]


def wanted(study: Study, context: ExpansionContext, matching: set[int]) -> Iterator[Combination]:
    """Yield every combination that the study asks for, possible or not: its axes without exclude, then include.

    Places of exclusions that match a combination are added to ``matching``.

    Raises StudyError where they are more, or need more processes, than could ever be run.
    """
    count = processes = 0
    for inclusion in (None, *study.include):
        for combination in StudyAxes(study, inclusion).combinations(context):
            count += 1
            processes += combination.workers + combination.servers
            if count > _MOST or processes > _MOST_PROCESSES:
                raise StudyError(_too_many(study, count))
            excluded = [] if inclusion else [n for n, each in enumerate(study.exclude) if _matches(each, combination)]
            matching.update(excluded)
            if not excluded:
                yield combination


_MOST = 5000
_MOST_PROCESSES = 20_000
"""Of all combinations together. A study of so many trials would run for a day at least."""


def _too_many(study: Study, count: int) -> str:
    longest = sorted(PLAIN_AXES, key=lambda axis: -len(getattr(study, axis)))[:3]
    axes = ", ".join(f"{axis} ({len(getattr(study, axis))})" for axis in longest)
    return (
        f"{study.name}: its axes give more than {_MOST} combinations, or more than {_MOST_PROCESSES} processes in the "
        f"first {count} of them; make several studies of it. The axes with most values are {axes}"
    )


def automatic_device(study: Study, context: ExpansionContext) -> Literal["cpu", "cuda"]:
    """Return what the device ``auto`` means in a study: one device for all frameworks, so that the race is one.

    CUDA where this machine, or each host of the site, has devices enough for the study's fewest workers, and any of its
    frameworks can use them; those that cannot are left out of the study, with their reason. The launchers that know no
    CUDA device mean the processor, and so does a site whose number of devices is unknown.
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
    named = named_axes(exclusion)
    options = named.pop("options", None)
    if options is not None and not _settings_match(options.get(combination.framework, {}), combination.options):
        return False
    variables = named.pop("environment_variables", None)
    if variables is not None and not _settings_match(
        variables_of(combination.framework, variables), combination.environment_variables
    ):
        return False
    return all(combination.value_of(axis) in named[axis.name] for axis in AXES if axis.name in named)


def _settings_match(chosen: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> bool:
    """Whether all settings that an exclusion names, if it names any, have one of the values that it gives."""
    return bool(chosen) and all(settings.get(name) in values for name, values in chosen.items())
