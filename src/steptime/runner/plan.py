"""The plan of a run: a study, the trials that it expands into, the exact commands, and about how long they take."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptime.catalog.accelerators import Accelerators
from steptime.catalog.found_site import NeededPaths, Site
from steptime.catalog.manifest import Manifest, load_manifests
from steptime.catalog.plugins import OWN
from steptime.catalog.workloads.own_module import OwnModule
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.builtins import BUILTINS
from steptime.datasets.dataset import Contents
from steptime.environments.cache import cache_folder
from steptime.environments.kinds import EnvironmentSpec, addresses, find_ready
from steptime.errors import LaunchError, StudyError
from steptime.execution.host import usable_cores
from steptime.execution.launch_request import environment_key, request_of
from steptime.execution.run_folder import trial_run_folder
from steptime.expansion.combinations import DatasetFacts
from steptime.expansion.expansion import Expansion, Skipped, expand, skipped_in_words
from steptime.expansion.site import accelerators_of, site_of_study
from steptime.launchers.namespaces import NO_NAMESPACE
from steptime.launchers.request import Process, Request
from steptime.launchers.table import launcher_named
from steptime.results.folder import RESULTS
from steptime.runner.durations import search_s
from steptime.runner.preparation import NO_ACCELERATORS, dataset_facts, environment_spec
from steptime.runner.run_kinds import RUN_KINDS, TIMED, RunKind
from steptime.study.environment_variables import passed, refusal, stripped
from steptime.study.study import SMALL, Study
from steptime.study.study_file import read_study, study_files, study_text
from steptime.study.trial import Trial
from steptime.units import parse_duration

_FIRST_PORT = 15_000
_NAMED_FILES = 5
OVER_HOSTS = "launches on several hosts use the network that joins these"


@dataclass(frozen=True)
class StudyPlan:
    """A study, its trials on this machine, and where its results go."""

    study: Study
    study_text: str
    expansion: Expansion
    manifests: Mapping[str, Manifest]
    folder: Path
    """The results folder."""
    budget_s: float | None
    words: Sequence[str]
    """Of the command that resumes the run, but for its budget."""
    budget: str | None
    """That was given with the command, as it was written."""
    accelerators: Accelerators = NO_ACCELERATORS
    """The CUDA devices of this machine, or of the hosts as the probe found them."""
    site: Site | None = None
    """The hosts that launches use; None if they use this one."""
    datasets: Mapping[str, DatasetFacts] = field(default_factory=dict)
    """Facts of the study's datasets, by the name or folder that it gives."""

    @property
    def contents(self) -> dict[str, Contents]:
        """What of each of the user's folders of images is used, and what is not."""
        return {name: facts.contents for name, facts in self.datasets.items() if facts.contents}

    @property
    def estimate_s(self) -> float:
        """About how long the launches of one run will take, without environments, datasets and checks."""
        return self.wanted_s if self.budget_s is None else min(self.wanted_s, self.budget_s)

    @property
    def wanted_s(self) -> float:
        """About how long all launches take, whatever the budget."""
        return sum(self.launches(kind)[1] for kind in RUN_KINDS)

    def launches(self, kind: RunKind[Any]) -> tuple[int, float]:
        """Return how many launches of a kind there will be at least, over all trials, and about how long they take."""
        trials = self.expansion.trials
        seconds = sum(kind.launches(self.study, trial) * kind.each_s(self.study, trial) for trial in trials)
        return kind.count(self.study, trials), seconds

    def searches(self) -> dict[str, float]:
        """Return for how long each launch whose speed counts searches kernels, by what it trains, where it does."""
        found = {f"{trial.workload} in {trial.framework}": search_s(trial) for trial in self.expansion.trials}
        return {launch: seconds for launch, seconds in found.items() if seconds}

    @property
    def timed(self) -> list[Trial]:
        """The trials whose steps are timed; the others are trained until it is over."""
        return TIMED.trials(self.study, self.expansion.trials)

    @property
    def most_hosts(self) -> int:
        """How many hosts of the site the largest trial needs; 0 without a site."""
        used = (trial.cluster for trial in self.expansion.trials if trial.cluster and trial.cluster.kind == "found")
        return max((len(cluster.hosts) for cluster in used), default=0) if self.site else 0

    @property
    def spare_hosts(self) -> int:
        """How many hosts of the site no trial needs, as long as none dies."""
        return len(self.site.hosts) - self.most_hosts if self.site else 0

    def resuming(self, budget: str | None = None) -> str:
        """Return the command that resumes the run, with another ``budget`` than its own if there is one."""
        budget = budget or self.budget
        return shlex.join([*self.words, *(["--budget", budget] if budget else [])])

    def commands(self, trial: Trial, *, shared: bool = False) -> list[str]:
        """Return one shell line per process of ``trial``'s first launch, with its environment variables.

        With ``shared``, a line ahead of them exports the variables that all set alike (``shell_lines``).
        The ports are examples: a launch takes free ones when it starts. An environment that does not exist yet is
        named by where it will be.
        """
        ports = range(_FIRST_PORT, _FIRST_PORT + 1 + trial.workers + trial.servers)
        try:
            processes = self.processes(trial, ports)
        except LaunchError as error:
            known = self._is_there(self.environment_spec(*environment_key(trial)))
            return [f"# {'cannot be started' if known else 'known when its environment is made'}: {error}"]
        return shell_lines(processes) if shared else [command_line(process) for process in processes]

    def processes(self, trial: Trial, ports: Sequence[int]) -> list[Process]:
        """Return the processes of ``trial``'s first launch; raises LaunchError where they cannot be started."""
        return launcher_named(trial.launcher).plan(self._request(trial), "RUN", ports)

    def missing_requirement(self, trial: Trial, site: Site | None = None) -> str | None:
        """Say what the launcher of a trial misses here, and what would help; None if nothing is known.

        Nothing is known before the environment of the trial is made, which may bring what is missing.

        Args:
            trial: one of the plan's.
            site: the hosts as the probe found them; None before it.
        """
        if not self._is_there(self.environment_spec(*environment_key(trial))):
            return None
        request = self._request(trial)
        if site is not None and request.site is not None:
            request = replace(request, site=site)
        return launcher_named(trial.launcher).missing_requirement(request)

    def _request(self, trial: Trial) -> Request:
        """Return what the launcher is asked for in ``trial``'s first launch."""
        manifest = self.manifests[trial.framework]
        return request_of(
            trial,
            manifest,
            folder=trial_run_folder(self.folder, trial, "launch", 0),
            interpreter=self._interpreter(manifest, trial),
            cores=usable_cores(),
            time_limit_s=self.study.time_limit,
            site=self.site,
            isolation=self.study.isolation,
            container=self.environment_spec(*environment_key(trial)).container,
        )

    def isolation(self) -> dict[str, str | None]:
        """Say for each launcher of the trials what keeps others out of its launches; None if nothing does."""
        launchers = dict.fromkeys(trial.launcher for trial in self.expansion.trials)
        wanted = self.study.isolation
        return {name: None if self.site else launcher_named(name).isolation(wanted) for name in launchers}

    def check_isolation(self) -> None:
        """Raise LaunchError where the study wants launches that others cannot reach, and they could."""
        exposed = [name for name, isolation in self.isolation().items() if isolation is None]
        if exposed and self.study.isolation == "required":
            message = (
                f"the study has 'isolation: required', and here others can reach the sockets of launches by "
                f"{', '.join(map(repr, exposed))}: {OVER_HOSTS if self.site else NO_NAMESPACE}; or set "
                "isolation=preferred"
            )
            raise LaunchError(message)

    def environment_spec(self, framework: str, device: str, loader: str, name: str | None) -> EnvironmentSpec:
        """Return what the environment of a framework must be that trains on a device, fed by a loader.

        Args:
            framework: that is launched in it.
            device: that it trains on.
            loader: that feeds it.
            name: of one of the study's named environments; None for the one that it has for the framework.
        """
        chosen = self.study.environment_choice(framework, name)
        spec = environment_spec(self.manifests[framework], chosen, device, self.accelerators, loader)
        # What steptime makes is found by its own name.
        return replace(spec, name=f"{spec.name}-{name}") if name and spec.interpreter is not None else spec

    def needed_paths(self) -> NeededPaths:
        """Return what every host must have at the same paths, beside steptime's installation and the results."""
        trials = self.expansion.trials
        environments = [self.environment_spec(*key) for key in dict.fromkeys(map(environment_key, trials))]
        own = [name for name in dict.fromkeys(trial.dataset for trial in trials) if name and name not in BUILTINS]
        own += [trial.own.folder for trial in trials if trial.own]
        own += [trial.training.validation for trial in trials if trial.training and trial.training.validation]
        reads_cache = any(trial.dataset for trial in trials) or any(
            each.kind not in {"core", "existing"} for each in environments
        )
        return NeededPaths(
            cache=str(cache_folder()) if reads_cache else None,
            datasets=tuple(str(Path(name).expanduser().absolute()) for name in dict.fromkeys(own)),
            interpreters=tuple(str(each.interpreter) for each in environments if each.interpreter is not None),
        )

    @staticmethod
    def _is_there(environment: EnvironmentSpec) -> bool:
        """Whether the interpreter of an environment is there; that of the user is not run, as in ``_interpreter``."""
        if environment.interpreter is None:
            return find_ready(environment) is not None
        return bool(environment.container) or environment.interpreter.exists()

    def _interpreter(self, manifest: Manifest, trial: Trial) -> Path:
        """Return a trial's Python, without running it: a study from somebody else may name any program."""
        environment = self.environment_spec(*environment_key(trial))
        if environment.interpreter is not None:
            return environment.interpreter
        ready = find_ready(environment)
        planned = next(iter(addresses([environment])), Path(manifest.name)) / environment.program
        return ready.interpreter if ready else planned

    def on(self, found: Site) -> "StudyPlan":
        """Return the plan on hosts as the probe found them.

        Their GPUs decide what the device ``auto`` means, which trials they have room for, and which environments for
        CUDA are made. Raises StudyError where no trial is left.
        """
        accelerators = accelerators_of(found)
        if not len(accelerators) and all(trial.device == "cpu" for trial in self.expansion.trials):
            return replace(self, site=found)
        expansion = expand(self.study, self.manifests, self.datasets, accelerators, found)
        expansion = _with_trials(self.study.name, expansion, found)
        return replace(self, site=found, accelerators=accelerators, expansion=expansion)

    def devices_in_words(self) -> list[str]:
        """Say which slots of hosts are unused, and what is assumed of GPUs before the probe; nothing on this host."""
        if self.site is None:
            return []
        count, sentence = self.site.gpus_per_host, ""
        if any(trial.device == "cuda" for trial in self.expansion.trials):
            known = f"{count} on each host, as the study has it" if count else "as many as the probe finds on each host"
            sentence = (
                f"GPUs: {known}; those of this machine are not asked. Their kind shows when the hosts are probed: "
                "until then the newest CUDA build of each framework is assumed"
            )
        elif count is None and "auto" in self.study.device:
            sentence = (
                "device auto: cpu, unless the probe finds GPUs on every host; hosts.gpus_per_host or "
                "slurm.gpus_per_node says it before"
            )
        return [each for each in (self.site.unused_slots, sentence) if each]

    def variables_in_words(self) -> list[str]:
        """Return which variables of the user's shell change speed, and which of them launches get, in sentences."""
        return [*_kept_out_in_words(os.environ), *_passed_in_words(os.environ)]

    def passed_variables_in_words(self) -> list[str]:
        """Return those that launches get, in a sentence; the others change nothing in a run."""
        return _passed_in_words(os.environ)

    def foreign_programs(self) -> list[str]:
        """Return one sentence for each program that a run would start and that is neither steptime's nor made by it.

        That is every interpreter that the study names, with the container in which it is started, and every framework
        and workload of another distribution.
        """
        trials = self.expansion.trials
        frameworks = dict.fromkeys(trial.framework for trial in trials)
        keys = dict.fromkeys((trial.framework, trial.environment_name) for trial in trials)
        chosen = [(framework, self.study.environment_choice(framework, name)) for framework, name in keys]
        found = [
            f"{framework} with {shlex.join(each.command)}, as the study has it"
            for framework, each in chosen
            if each and each.command
        ]
        found += [
            f"{name}, the package {self.manifests[name].package} of {self.manifests[name].provider}"
            for name in frameworks
            if self.manifests[name].provider != OWN
        ]
        if self.site and not self.site.is_example:
            found.append(f"{self.site.reach} to {', '.join(self.site.names)}, as {self.site.source} says")
        own = {trial.workload: trial.own for trial in trials if trial.own is not None}
        names = dict.fromkeys(trial.workload for trial in trials if trial.own is None)
        workloads = {name: LIBRARY.provider(name) for name in names}
        found += [f"{name}, a workload of {provider}" for name, provider in workloads.items() if provider != OWN]
        return found + [_import_in_words(*each) for each in own.items()]


def _import_in_words(workload: str, own: OwnModule) -> str:
    """Say which files of the user's a launch imports for a workload."""
    path, *others = map(str, own.paths)
    more = f", with {', '.join(others)}" if len(others) <= _NAMED_FILES else f", with {len(others)} files beside it"
    return f"{workload}: imports {path}{more if others else ''}"


def _kept_out_in_words(shell: Mapping[str, str]) -> list[str]:
    """Return which variables of a user's shell change speed and are kept from launches, in a sentence."""
    left = stripped(shell)
    if not left:
        return []
    settable = next((name for name in left if refusal(name) is None), None)
    text = f"variables of your shell that change speed and that launches do not get: {', '.join(left)}"
    if settable is not None:
        text += f"; to use one, set it in the study, as environment_variables.{settable}={shell[settable]}"
    if "OMP_NUM_THREADS" in left:
        text += "; the number of threads is threads_per_worker"
    return [text]


def _passed_in_words(shell: Mapping[str, str]) -> list[str]:
    """Return which variables of a user's shell are passed on to launches, in a sentence."""
    given = passed(shell)
    return [f"variables of your shell that launches get, kept with their records: {', '.join(given)}"] if given else []


def missing_in_words(trials: Sequence[Trial], missing: Mapping[str, str | None]) -> list[str]:
    """Return one line per reason why trials cannot be started, with the number of trials of each framework.

    Args:
        trials: of a plan.
        missing: their ``missing_requirement``, by their ids.
    """
    reasons = ((trial.framework, missing[trial.id]) for trial in trials)
    found = [Skipped({"framework": framework}, reason) for framework, reason in reasons if reason]
    return [f"cannot be started: {line}" for line in skipped_in_words(found)]


def command_line(process: Process) -> str:
    """Return the shell line that starts ``process`` in its run folder."""
    return " ".join([*_assignments(process.environment), shlex.join(process.argv)])


def shell_lines(processes: Sequence[Process]) -> list[str]:
    """Return shell lines that start ``processes``; of several, ahead of them one that exports what all set alike."""
    first, *others = (process.environment for process in processes)
    alike = {name: first[name] for name in first if all(each.get(name) == first[name] for each in others)}
    if not (others and alike):
        return [command_line(process) for process in processes]
    own = [{name: each for name, each in process.environment.items() if name not in alike} for process in processes]
    lines = [command_line(replace(process, environment=each)) for process, each in zip(processes, own, strict=True)]
    return [" ".join(["export", *_assignments(alike)]), *lines]


def _assignments(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]


def _with_trials(name: str, expansion: Expansion, site: Site | None) -> Expansion:
    """Return the expansion of a study; raises StudyError with all reasons where it has no trial."""
    if not expansion.trials:
        reasons = skipped_in_words(expansion.skipped) or ["every combination is excluded"]
        where = "on this machine" if site is None else "on its hosts"
        message = [f"{name}: no combination of its axes can be run {where}", *reasons]
        raise StudyError(message)
    return expansion


def plan_study(
    name: str, overrides: Sequence[str], output: Path | None, budget: str | None, paths_from: Path | None = None
) -> StudyPlan:
    """Read and expand a study; ``paths_from`` is where relative paths in it start, by default its file's folder.

    Raises StudyError with all mistakes of the study and its overrides, DatasetError for an unusable folder.
    """
    all_overrides = [*overrides, f"budget={budget}"] if budget else list(overrides)
    text = study_text(name)
    study = read_study(name, all_overrides, text=text, paths_from=paths_from)
    manifests, site = load_manifests(), site_of_study(study)
    accelerators = accelerators_of(site)
    datasets = dataset_facts(study)
    expansion = _with_trials(name, expand(study, manifests, datasets, accelerators, site), site)
    results = study.name if study.scale == SMALL else f"{study.name}-{study.scale}"
    folder = output or RESULTS / results
    # What came through a pipe is found again in the results only.
    readable = name in study_files() or Path(name).is_file()
    command = ["steptime", "run", name if readable else str(folder / "study.yaml"), *overrides]
    command += ["-o", str(folder)] if output or not readable else []
    command += ["--paths-from", str(paths_from)] if paths_from else []
    return StudyPlan(
        study=study,
        study_text=text,
        expansion=expansion,
        manifests=manifests,
        folder=folder,
        budget_s=parse_duration(study.budget) if study.budget is not None else None,
        words=command,
        budget=budget,
        accelerators=accelerators,
        site=site,
        datasets=datasets,
    )
