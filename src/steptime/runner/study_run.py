"""A study from its file to its records, as a list of steps."""

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from steptime.environments.cache import cache_folder
from steptime.frameworks.manifest import Manifest
from steptime.launchers.orphans import end_orphans
from steptime.measurements.machine import fingerprint
from steptime.measurements.records import Launch
from steptime.measurements.stopping import suffices
from steptime.measurements.store import Store
from steptime.runner.ablation_runs import AblationRuns
from steptime.runner.equivalence.cache import CheckCache
from steptime.runner.equivalence.check import Checker, EquivalenceCheck
from steptime.runner.equivalence.oracle import REFERENCE
from steptime.runner.executor import Bench
from steptime.runner.expansion import Expansion, skipped_in_words
from steptime.runner.jobs import AblationSchedule, TimingSchedule
from steptime.runner.memory import memory_shortage
from steptime.runner.observer import Observer
from steptime.runner.preparation import (
    environment_spec,
    loader_of,
    prepare_datasets,
    prepare_environments,
    usable_cores,
)
from steptime.runner.schedule import Schedule
from steptime.runner.timed_runs import Race
from steptime.study.study import Breakdown, Study
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload
from steptime.workloads.table import build_workload

_ABLATION_SHARE = 0.4
"""Of the budget, kept back for taking steps apart where a study asks for that."""

NOT_RUN = "not run: the budget was spent before its first launch"


class Verdict(TypedDict):
    """Why a trial has no result of its own to show."""

    status: Literal["failed", "not_equivalent"]
    reason: str


@dataclass(frozen=True)
class Finished:
    """How a run ended, in numbers for the exit code and the last line."""

    ok: int
    failed: int
    not_equivalent: int
    not_run: int
    """For want of budget, which is no failure: another run goes on with them."""


@dataclass
class Run:
    """One run of a study into a results folder; what is there already is not repeated."""

    study: Study
    study_text: str
    expansion: Expansion
    manifests: Mapping[str, Manifest]
    folder: Path
    budget_s: float | None
    observer: Observer
    _verdicts: dict[str, Verdict] = field(default_factory=dict)

    def go(self) -> Finished:
        """Prepare, check, race and store.

        Raises StoreError when the folder is in use, and KeyboardInterrupt when the user stops it; everything
        measured before is kept.
        """
        end_orphans()
        store = self._store()
        with store.lock():
            store.set_machine(fingerprint())
            store.put("skipped", {"lines": skipped_in_words(self.expansion.skipped)})
            for trial in self.expansion.trials:
                store.add_trial(trial)
            try:
                self._run(store)
            finally:
                store.put("verdicts", self._verdicts)
        return self._count(store)

    def _store(self) -> Store:
        resolved = self.study.model_dump(mode="json")
        if Store.exists(self.folder):
            store = Store.open(self.folder)
            store.set_study(self.study_text, resolved)
            return store
        return Store.create(self.folder, study_text=self.study_text, study_json=resolved)

    def _run(self, store: Store) -> None:
        trials = self._fitting(self.expansion.trials)
        frameworks = dict.fromkeys(trial.framework for trial in trials)
        if self.study.equivalence.enabled:
            frameworks.setdefault(REFERENCE)
        specs = [environment_spec(self.manifests[name], self.study.environments.get(name)) for name in frameworks]
        prepared = prepare_environments(specs, self.observer)
        trials = self._without(trials, {t.id: prepared.failures.get(t.framework) for t in trials}, "failed")
        datasets = prepare_datasets({t.dataset for t in trials if t.dataset}, self.observer)
        bench = Bench(self.manifests, prepared.environments, usable_cores(), self.study.time_limit)
        workloads = {t.id: build_workload(t.workload, t.input_shape, t.classes) for t in trials}
        if self.study.equivalence.enabled:
            trials = self._without(trials, self._check(store, bench, trials, workloads), "not_equivalent")
        race = Race(
            bench=bench,
            timing=TimingSchedule(
                self.study.steps.warmup, self.study.seconds_per_launch, self.study.steps.min, self.study.steps.max
            ),
            workloads=workloads,
            loaders={t.id: loader_of(t, datasets) for t in trials},
            folder=lambda trial, number: self.folder / "trials" / trial.id / f"launch-{number}",
            keep=store.append,
            observer=self.observer,
        )
        schedule = Schedule(
            trials=trials,
            suffices=self._suffices,
            min_launches=self.study.launches.min,
            max_launches=self.study.launches.max,
            seed=self.study.seed,
            launches={t.id: list(store.launches(t.id)) for t in trials},
        )
        # Environments, datasets and checks are made once per machine; the budget is for what every run does.
        deadline = None if self.budget_s is None else time.monotonic() + self.budget_s
        breakdown = self.study.breakdown
        kept_back = 0.0 if self.budget_s is None or breakdown is None else self.budget_s * _ABLATION_SHARE
        race.run(schedule, None if deadline is None else deadline - kept_back)
        if breakdown is not None:
            self._take_apart(store, race, [t for t in trials if schedule.launches.get(t.id)], breakdown, deadline)
        for trial in trials:
            if not schedule.launches.get(trial.id):
                self._verdicts[trial.id] = {"status": "failed", "reason": NOT_RUN}

    def _take_apart(
        self, store: Store, race: Race, trials: list[Trial], breakdown: Breakdown, deadline: float | None
    ) -> None:
        ablation_runs = AblationRuns(
            bench=race.bench,
            schedule=AblationSchedule(self.study.steps.warmup, breakdown.seconds),
            launches=breakdown.launches,
            workloads=race.workloads,
            loaders=race.loaders,
            folder=lambda trial, number: self.folder / "trials" / trial.id / f"ablation-{number}",
            keep=store.append_ablation,
            observer=self.observer,
            seed=self.study.seed,
        )
        done = {t.id: sum(each.status == "ok" for each in store.ablations(t.id)) for t in trials}
        ablation_runs.run(trials, done, deadline)

    def _suffices(self, trial: Trial, launches: Iterable[Launch]) -> bool:
        return suffices(trial, list(launches), self.study.target)

    def _fitting(self, trials: Iterable[Trial]) -> list[Trial]:
        shortages = {}
        for trial in trials:
            workload = build_workload(trial.workload, trial.input_shape, trial.classes)
            shortages[trial.id] = memory_shortage(trial, workload)
        return self._without(list(trials), shortages, "failed")

    def _check(
        self, store: Store, bench: Bench, trials: list[Trial], workloads: Mapping[str, Workload]
    ) -> dict[str, str]:
        scratch = self.folder / "equivalence"
        shutil.rmtree(scratch, ignore_errors=True)
        equivalence = EquivalenceCheck(
            checker=Checker(bench, scratch, self.study.equivalence.steps, self.study.equivalence.repeats),
            cache=CheckCache(cache_folder() / "equivalence", self.manifests[REFERENCE]),
            workloads=workloads,
            keep=store.append_equivalence,
            observer=self.observer,
        )
        equivalence.run(trials, side_by_side=max(1, len(bench.cores) // 2) + 1)
        return equivalence.failures

    def _without(
        self, trials: list[Trial], reasons: Mapping[str, str | None], status: Literal["failed", "not_equivalent"]
    ) -> list[Trial]:
        """Return the trials that have no reason against them; the others get their verdict, for the report."""
        for trial_id, reason in reasons.items():
            if reason:
                self._verdicts[trial_id] = {"status": status, "reason": reason}
        return [trial for trial in trials if trial.id not in self._verdicts]

    def _count(self, store: Store) -> Finished:
        not_equivalent = sum(verdict["status"] == "not_equivalent" for verdict in self._verdicts.values())
        ok = sum(
            trial.id not in self._verdicts and any(each.status == "ok" for each in store.iter_launches(trial.id))
            for trial in self.expansion.trials
        )
        not_run = sum(verdict["reason"] == NOT_RUN for verdict in self._verdicts.values())
        return Finished(ok, len(self.expansion.trials) - ok - not_equivalent - not_run, not_equivalent, not_run)
