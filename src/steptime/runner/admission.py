"""Which trials of a plan may be launched: those that fit their hosts, have what they need, and train the same.

Every other one gets a verdict with the reason: why it has no result, or no rank.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from steptime.catalog.choices import SYNTHETIC
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import Manifest
from steptime.catalog.workloads.layers import Workload
from steptime.environments.cache import cache_folder
from steptime.equivalence.check import Case, CheckCache, Checker, EquivalenceCheck
from steptime.equivalence.loaders import LoaderInput
from steptime.errors import EnvironmentFailure
from steptime.execution.executor import Executor
from steptime.execution.host import (
    SHARED_MEMORY,
    memory_shortage,
    shared_batches_bytes,
    shared_memory_bytes,
    usable_cores,
)
from steptime.execution.launch_request import environment_key
from steptime.execution.living_hosts import living_hosts
from steptime.execution.progress import Observer
from steptime.expansion.site import machine_of_checks
from steptime.results.accuracy_records import TrainingRun
from steptime.results.record_kinds import TIMING, TRAINING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.runner.budget import Budget
from steptime.runner.plan import StudyPlan, missing_in_words
from steptime.runner.preparation import data_environment_spec, dataset_names, missing_builtins, prepare_environments
from steptime.study.axis import REFERENCE
from steptime.study.trial import Trial
from steptime.units import format_bytes, format_count
from steptime.validity.verdicts import TrialVerdict

NOT_RUN = "not run: the budget was spent before its first launch"
NOT_CHECKED = "not run: the budget did not suffice for its checks"
NOT_REPEATED = "not ranked: the run ended before its timed steps were repeated without timers; rerun to continue"
CHECKS_CUT = "{} did not end within the part of the budget for checks; those that did are kept"
HALF_TRAINED = "not finished: the budget is spent, and of its first training {}; rerun to continue"


@dataclass(frozen=True)
class TrialCounts:
    """How the trials of a run ended, in numbers for the exit code and the last line."""

    ok: int
    failed: int
    not_equivalent: int
    not_run: int
    """Without a result or a rank for want of time, which is not a failure: another run goes on with them."""


@dataclass
class Verdicts:
    """What a run found against trials, by trial id; those of earlier runs stay where it did not look again."""

    against: dict[str, TrialVerdict] = field(default_factory=dict)
    """Of trials that have no result."""
    _unranked: dict[str, TrialVerdict] = field(default_factory=dict)
    """Of trials that are measured and change what is computed."""
    _left_out: set[str] = field(default_factory=set)
    """The ids of the trials that the budget did not suffice for."""
    _accepted: set[str] = field(default_factory=set)
    """The ids of the trials that this run found nothing against before launching them."""

    def refuse(
        self, trials: list[Trial], reasons: Mapping[str, str | None], status: Literal["failed", "not_equivalent"]
    ) -> list[Trial]:
        """Return the trials that have no reason against them; the others get their verdict, for the report."""
        for trial_id, reason in reasons.items():
            if reason:
                self.against[trial_id] = {"status": status, "reason": reason}
        return [trial for trial in trials if trial.id not in self.against]

    def accept(self, trials: Sequence[Trial], manifests: Mapping[str, Manifest]) -> None:
        """Note the trials that are launched, and which of them change what is computed, by their options."""
        self._accepted |= {trial.id for trial in trials}
        reasons = {each.id: manifests[each.framework].unranked(each.options) for each in trials}
        self._unranked |= {
            trial_id: {"status": "unranked", "reason": reason} for trial_id, reason in reasons.items() if reason
        }

    def unrank(self, trial: Trial, reason: str) -> None:
        """Take the rank from a trial that this run has measured, for want of time."""
        self._unranked[trial.id] = {"status": "unranked", "reason": reason}
        self._left_out.add(trial.id)

    def leave_out(self, trial: Trial, reason: str) -> None:
        """Give a trial its verdict for want of budget."""
        self.against[trial.id] = {"status": "failed", "reason": reason}
        self._left_out.add(trial.id)

    def keep(self, store: Store) -> None:
        """Keep what this run found against trials, and what earlier ones did that this run has not looked at again."""
        before = store.get("verdicts") or {}
        standing = {trial_id: verdict for trial_id, verdict in before.items() if trial_id not in self._accepted}
        store.put("verdicts", {**standing, **self._unranked, **self.against})

    def counts(self, store: Store, trials: Sequence[Trial]) -> TrialCounts:
        """Return how many of ``trials`` ended how."""
        differing = {name for name, verdict in self.against.items() if verdict["status"] == "not_equivalent"}
        ok = sum(
            trial.id not in self._left_out.union(self.against)
            and any(each.status == "ok" for each in _measured(store, trial))
            for trial in trials
        )
        not_run = len(self._left_out - differing)
        return TrialCounts(ok, len(trials) - ok - len(differing) - not_run, len(differing), not_run)


def _measured(store: Store, trial: Trial) -> Iterable[Launch | TrainingRun]:
    """Return what was measured of a trial: its trainings, or its timed launches."""
    if trial.training:
        return store.records(TRAINING, trial.id)
    return store.iter_records(TIMING, trial.id)


@dataclass
class Gate:
    """Checks trials just before they are launched, so that the first results need not wait for the last check."""

    manifests: Mapping[str, Manifest]
    verdicts: Verdicts
    checks: "Checks | None" = None
    """None of a study without any."""
    _seen: set[str] = field(default_factory=set)
    unchecked: set[str] = field(default_factory=set)
    """The ids of trials whose checks were not over, or not begun, when their time was."""

    def admit(self, trials: Sequence[Trial], until: float | None = None) -> list[Trial]:
        """Return the trials that pass; those that were not looked at are checked first, as many as ``until`` allows.

        That is when their first launches and replays must be over, on the clock of the budget; None without one.
        """
        new = [trial for trial in trials if trial.id not in self._seen]
        if new:
            self._seen |= {trial.id for trial in new}
            checked = [trial for trial in new if not self.manifests[trial.framework].altering(trial.options)]
            if self.checks is not None:
                self.unchecked |= self.checks.run(checked, until)
                self.verdicts.refuse(new, self.checks.equivalence.failures, "not_equivalent")
            self.verdicts.accept(self._passing(new), self.manifests)
        return self._passing(trials)

    def admit_late(self, deadline: Callable[[], float | None], trials: Sequence[Trial]) -> list[Trial] | None:
        """Return the trials that pass of those whose checks were not over in time; None if no check is begun anew.

        ``deadline`` returns when their first launches and replays must be over.
        """
        until = deadline()
        late = [trial for trial in trials if trial.id in self.unchecked]
        if self.checks is None or not (chosen := self.checks.affordable_late(late, until)):
            return None
        ids = {trial.id for trial in chosen}
        self.unchecked = (self.unchecked - ids) | self.checks.run(chosen, until, late=True)
        self.verdicts.refuse(chosen, self.checks.equivalence.failures, "not_equivalent")
        self.verdicts.accept(self._passing(chosen), self.manifests)
        return self._passing(chosen)

    def admit_until(self, deadline: Callable[[], float | None], trials: Sequence[Trial]) -> list[Trial]:
        """Likewise, with the moment that ``deadline`` returns now."""
        return self.admit(trials, deadline())

    def pending(self, trials: Sequence[Trial]) -> list[Case]:
        """Return the checks of ``trials`` that are still to be made."""
        return self.checks.equivalence.pending(trials) if self.checks else []

    def _passing(self, trials: Sequence[Trial]) -> list[Trial]:
        out = self.unchecked.union(self.verdicts.against)
        return [trial for trial in trials if trial.id not in out]


@dataclass
class Checks:
    """The equivalence check of a run, within its budget."""

    equivalence: EquivalenceCheck
    budget: Budget
    at_once: Callable[[Sequence[Trial]], int]
    observer: Observer
    _begun: bool = False
    """Whether trials were chosen before."""

    def affordable_late(self, trials: Sequence[Trial], until: float | None) -> list[Trial]:
        """Return the trials whose checks were not over in time and can be ``until`` then."""
        return self.budget.affordable_late(trials, self.equivalence.pending(trials), until)

    def run(self, trials: Sequence[Trial], until: float | None, *, late: bool = False) -> set[str]:
        """Check ``trials``; return the ids of those whose checks were not made in time.

        Of trials that come ``late`` nothing else is to be done before their launches, which alone are left time.
        """
        pending = self.equivalence.pending(trials)
        first = not self._begun
        chosen = [*trials] if late else self.budget.affordable(trials, pending, until, first=first)
        self._begun |= bool(chosen)
        end = self.budget.end_of_checks(chosen, until, first=first)
        if late and until is not None:
            end = until - self.budget.launches_s(chosen)
        cancelled = self.equivalence.checker.executor.cancelled
        with self.budget.ending(cancelled, end):
            if chosen:
                may_begin = partial(self.budget.holds_check, until=end)
                self.equivalence.run(chosen, side_by_side=self.at_once(chosen), may_begin=may_begin)
        cancelled.clear()
        unknown = {each.id for each in trials} - {each.id for each in chosen}
        if cut := self.equivalence.pending(chosen):
            unknown |= {trial_id for each in cut for trial_id in each.stands_for}
            shortage = self.budget.shortage(trials, self.equivalence.pending(trials))
            for line in [CHECKS_CUT.format(format_count(len(cut), "check")), *shortage]:
                self.observer.note(line)
        return unknown


_MOST_CHECKS_ON_HOSTS = 4
_MOST_CHECKS_ON_A_DEVICE = 4
_TRYING_BYTES = 5e9
"""On an H200, LeNet-5 had 2.3 GB and ResNet-50 with 8 small pictures 4.9 GB allocated at most, by torch 2.11."""


def shared_memory_warning(trials: Sequence[Trial], folder: Path = SHARED_MEMORY) -> str | None:
    """Return what to do about loader helpers of trials that may find the shared memory of this host full, if any may.

    Whether a framework's helpers keep their batches there is for the framework to decide, so that no trial is refused.
    """
    free = shared_memory_bytes(folder)
    most = max(trials, key=shared_batches_bytes, default=None)
    if free is None or most is None or shared_batches_bytes(most) <= free[0]:
        return None
    return (
        f"{folder} has {format_bytes(free[0])} free, and the loader helpers of {most.id} may hold "
        f"{format_bytes(shared_batches_bytes(most))} of batches in it; a helper that finds it full ends the launch. "
        "Give a container more (docker run --shm-size=2g), or use fewer loader_processes or a smaller batch_per_worker"
    )


def launches_on_a_device(
    trials: Sequence[Trial], workloads: Mapping[str, Workload], device_bytes: float | None, cores: int
) -> int:
    """Return how many launches one device has memory for, with what cuDNN takes for a moment to try its algorithms.

    Args:
        trials: to be launched, of which nothing is timed.
        workloads: by the trials' ids.
        device_bytes: of the smallest CUDA device; None if unknown.
        cores: of this host; two for a launch.
    """
    if device_bytes is None or any(workload.own is not None for workload in workloads.values()):
        return 1
    for count in range(min(_MOST_CHECKS_ON_A_DEVICE, cores // 2), 1, -1):
        share = device_bytes / count - _TRYING_BYTES
        if not any(memory_shortage(each, workloads[each.id], None, share) for each in trials):
            return count
    return 1


@dataclass(frozen=True)
class Admission:
    """The gates that the trials of a study pass one after the other, in a run whose hosts are found."""

    plan: StudyPlan
    site: Site | None
    """The hosts of the study, as they were found."""
    observer: Observer
    verdicts: Verdicts
    recheck: bool = False
    """Whether checks are repeated that an earlier run has kept."""

    def fitting(self, workloads: Mapping[str, Workload]) -> list[Trial]:
        """Return the trials that the memory of their hosts suffices for."""
        trials, device_bytes = list(self.plan.expansion.trials), self.plan.accelerators.memory_bytes
        shortages = {}
        for trial in trials:
            sharing, available = self._memory_of(trial)
            shortages[trial.id] = memory_shortage(trial, workloads[trial.id], available, device_bytes, sharing)
        fitting = self.verdicts.refuse(trials, shortages, "failed")
        if self.site is None and (warning := shared_memory_warning(fitting)):
            self.observer.note(warning)
        return fitting

    def startable(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials whose launcher has what it needs, as far as is known; say of the others what is missing."""
        missing = {trial.id: self.plan.missing_requirement(trial, self.site) for trial in trials}
        for line in missing_in_words(trials, missing):
            self.observer.note(line)
        return self.verdicts.refuse(trials, missing, "failed")

    def _memory_of(self, trial: Trial) -> tuple[int | None, float | None]:
        """Return how many workers share a host of the site, and the least memory that a host has; None without one."""
        if self.site is None or (cluster := trial.cluster) is None:
            return None, None
        least_bytes = self.site.least_memory_bytes(len(cluster.hosts))
        return cluster.most_workers_of_a_host(trial.workers), least_bytes

    def executor(self, trials: list[Trial], store: Store) -> tuple[Executor, list[Trial]]:
        """Make the environments; return what launches in them, and the trials that have one.

        That which makes datasets is made beside them, and raises EnvironmentFailure where it cannot be.
        """
        study, manifests = self.plan.study, self.plan.manifests
        needed = dict.fromkeys(environment_key(trial) for trial in trials)
        if study.equivalence.enabled:
            # The check feeds known batches, so that no loader's environment takes part in it.
            needed |= dict.fromkeys((key[0], key[1], SYNTHETIC.name, key[3]) for key in list(needed))
            needed.setdefault((REFERENCE, "cpu", SYNTHETIC.name, None))
        specs = {each: self.plan.environment_spec(*each) for each in needed}
        makers = [data_environment_spec()] if missing_builtins(dataset_names(trials)) else []
        prepared = prepare_environments(
            {spec.name: spec for spec in (*specs.values(), *makers)}.values(), self.observer
        )
        for spec in makers:
            if spec.name in prepared.failures:
                raise EnvironmentFailure(prepared.failures[spec.name])
        names = {each: spec.name for each, spec in specs.items()}
        executor = Executor(
            manifests,
            prepared.environments,
            usable_cores(),
            study.time_limit,
            study.isolation,
            environment_names=names,
            results=self.plan.folder,
            forks=study.launches.forks,
        )
        if self.site:
            paths = self.plan.needed_paths()
            living = living_hosts(self.site, self.plan.most_hosts, store, self.observer, paths)
            executor = replace(executor, hosts=living)
        failures = {trial.id: prepared.failures.get(names[environment_key(trial)]) for trial in trials}
        return executor, self.verdicts.refuse(trials, failures, "failed")

    def gate(
        self,
        store: Store,
        executor: Executor,
        workloads: Mapping[str, Workload],
        inputs: Mapping[str, LoaderInput],
        budget: Budget,
    ) -> Gate:
        """Return what lets trials pass that are right; all of them where the study has no equivalence check."""
        settings = self.plan.study.equivalence
        if not settings.enabled:
            return Gate(self.plan.manifests, self.verdicts)
        scratch = self.plan.folder / "equivalence"
        executor.remove(scratch)
        equivalence = EquivalenceCheck(
            # A check whose time is over is ended alone.
            checker=Checker(replace(executor, cancelled=threading.Event()), scratch, settings.steps, settings.repeats),
            cache=CheckCache(
                cache_folder() / "equivalence",
                self.plan.manifests[REFERENCE],
                machine=machine_of_checks(self.site) if self.site else None,
                renewed=self.recheck,
            ),
            workloads=workloads,
            keep=store.append_equivalence,
            observer=self.observer,
            inputs=inputs,
            took=lambda case, seconds, is_over: budget.note_check(case.trial, seconds, is_over=is_over),
        )

        def at_once(trials: Sequence[Trial]) -> int:
            return self.checks_at_once(executor, trials, workloads)

        return Gate(self.plan.manifests, self.verdicts, Checks(equivalence, budget, at_once, self.observer))

    def checks_at_once(self, executor: Executor, trials: Sequence[Trial], workloads: Mapping[str, Workload]) -> int:
        """Return how many checks run side by side; on hosts few, since sshd refuses those who call it all at once."""
        if any(trial.device == "cuda" for trial in trials):
            cores = 1 if self.site else len(executor.cores)
            return launches_on_a_device(trials, workloads, self.plan.accelerators.memory_bytes, cores)
        if self.site is None:
            return max(1, len(executor.cores) // 2) + 1
        return min(_MOST_CHECKS_ON_HOSTS, self.site.fewest_cores(len(self.site.hosts)) // 2 + 1)
