"""One run of a study: from its plan to the records of its launches, as a list of steps."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from steptime.analysis.published import merged_tiers
from steptime.catalog.found_site import Site
from steptime.datasets.builtins import BUILTINS
from steptime.datasets.dataset import Dataset
from steptime.equivalence.loaders import LoaderInput
from steptime.equivalence.replay import Replays
from steptime.execution.executor import OUT_OF_MEMORY, Executor
from steptime.execution.living_hosts import probe_site
from steptime.execution.progress import KeptProgress, Observer
from steptime.expansion.expansion import skipped_in_words
from steptime.foreign_writers import require_folder_for_launches, require_own_files
from steptime.interruption import Interrupted, shielded, unmasked
from steptime.launchers.orphans import end_orphans
from steptime.results.machine import fingerprint
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.results.stored_record import TrialLaunch
from steptime.runner.admission import (
    HALF_TRAINED,
    NOT_CHECKED,
    NOT_REPEATED,
    NOT_RUN,
    Admission,
    Gate,
    TrialCounts,
    Verdicts,
)
from steptime.runner.allocation import Allocation
from steptime.runner.block_runner import AbstractRuns, BlockRunner, Schedule
from steptime.runner.budget import Budget, missing_launches, missing_replays
from steptime.runner.durations import KeptDurations
from steptime.runner.further_launches import what_more_launches_show
from steptime.runner.plan import StudyPlan
from steptime.runner.preparation import (
    dataset_names,
    datasets_with_skips,
    loader_of,
    prepare_datasets,
    prepare_stored_form,
    readings_of,
    reference_loader_of,
    training_split,
)
from steptime.runner.run_kinds import RUN_KINDS, TIMED, RunInputs, RunKind, without_breakdown
from steptime.runner.trial_runs import BatchSearch, TrialInputs
from steptime.study.trial import Trial
from steptime.validity.missing_evidence import is_unproven, unrepeated_launches
from steptime.validity.verdicts import TrialVerdict


@dataclass
class StudyRun:
    """One run of a study into a results folder; what is there already is not repeated."""

    plan: StudyPlan
    observer: Observer
    allocation: Allocation | None = None
    """That the run is in."""
    recheck: bool = False
    """Whether checks are repeated that an earlier run has kept."""
    kept: int = 0
    """Launches that this run has kept."""
    durations: KeptDurations = field(default_factory=KeptDurations.of_machine)
    """Of what earlier runs and this one did here."""
    began: float = field(default_factory=time.monotonic)
    """When the budget began, on the monotonic clock."""
    not_done: list[str] = field(default_factory=list)
    """What of the study this run has left out for want of budget, a sentence each."""
    budget: Budget | None = None
    """None before the run."""
    _site: Site | None = None
    """The hosts of the study, as they were found."""
    _verdicts: Verdicts = field(default_factory=Verdicts)
    _unproven: Mapping[str, Sequence[Launch]] = field(default_factory=dict)
    """Timed launches by trial id; none once their replays have been made."""

    def run(self) -> TrialCounts:
        """Prepare, check, launch and store.

        Raises StoreError when the folder is in use, and Interrupted when a signal stops it; everything
        measured before is kept. Raises Unfinished where its allocation has no time left for another launch.
        """
        self.plan.check_isolation()
        budget = self.budget = Budget(self.plan.study, self.durations, self.plan.budget_s, began=self.began)
        end_orphans()
        study, store = self.plan.study, self._store()
        with store.lock(), self._kept_progress():
            store.set_machine(fingerprint(alone=self.plan.site is None))
            for line in self.plan.expansion.without_effect:
                self.observer.note(line)
            if self.plan.site is not None:
                needed = self.plan.needed_paths()
                self._settle_on(probe_site(self.plan.site, store, self.observer, "steptime submit STUDY", needed))
            store.put("skipped", {"lines": skipped_in_words(self.plan.expansion.skipped)})
            store.put("tiers", merged_tiers(store.get("tiers") or {}, self.plan.expansion.tiers))
            store.put("implementations", {**(store.get("implementations") or {}), **self._implementations()})
            for trial in self.plan.expansion.trials:
                store.add_trial(trial)
            try:
                workloads = {t.id: t.build() for t in self.plan.expansion.trials}
                admission = self._admission()
                trials = admission.startable(admission.fitting(workloads))
                # Environments and datasets are made once per machine; the budget is for what every run does.
                with budget.paused():
                    executor, trials = admission.executor(trials, store)
                    trials = admission.startable(trials)  # some environments bring what their launcher needs
                    datasets = self._datasets(trials, store)
                    splits = {t.id: split for t in trials if (split := training_split(t, datasets))}
                    sources = {
                        t.id: splits[t.id].training if t.id in splits else datasets[t.dataset]
                        for t in trials
                        if t.dataset
                    }
                    loaders = self._loaders(trials, sources)
                checked = {
                    t.id: LoaderInput(loaders[t.id], reference_loader_of(t, sources[t.id], loaders[t.id]))
                    for t in trials
                    if t.dataset is not None
                }
                if not self._site:
                    budget.cores = len(executor.cores)
                budget.at_once = admission.checks_at_once(executor, trials, workloads)
                gate = admission.gate(store, executor, workloads, checked, budget)
                inputs = TrialInputs(self.plan.folder, workloads, loaders)
                run = RunInputs(study, store, inputs, splits, executor.hosts, self.durations, budget.replay_s)
                with closing(executor.preloading):
                    self._launch(run, executor, trials, gate, budget)
            finally:
                with shielded():
                    for trial in self.plan.expansion.trials if study.equivalence.enabled else ():
                        if is_unproven(trial, self._good(trial), store.replays(trial.id)):
                            self._verdicts.unrank(trial, NOT_REPEATED)
                    self._verdicts.keep(store)
                    self.durations.keep()
        return self._verdicts.counts(store, self.plan.expansion.trials)

    def _admission(self) -> Admission:
        return Admission(self.plan, self._site, self.observer, self._verdicts, self.recheck)

    def _settle_on(self, site: Site) -> None:
        """Plan the study for hosts as they were found; their GPUs may mean other devices than those planned before."""
        before = {trial.device for trial in self.plan.expansion.trials}
        self._site, self.plan = site, self.plan.on(site)
        now = {trial.device for trial in self.plan.expansion.trials}
        if now != before:
            devices = " and ".join(sorted(now))
            self.observer.note(f"with {site.gpus_per_host} GPUs on each host the study trains on {devices}")

    @contextmanager
    def _kept_progress(self) -> Iterator[None]:
        """Keep progress in the results folder meanwhile, and how the run ended."""
        job = self.allocation.job if self.allocation else None
        shown, kept = self.observer, KeptProgress(self.observer, self.plan.folder, job)
        self.observer, how = kept, "done"
        try:
            kept.begin()
            with unmasked():
                yield
        except BaseException as error:
            how = f"interrupted by {error}" if isinstance(error, Interrupted) else str(error)
            raise
        finally:
            self.observer = shown
            with shielded():
                kept.end(how)

    def _launch(self, run: RunInputs, executor: Executor, trials: Sequence[Trial], gate: Gate, budget: Budget) -> None:
        """Launch what is still wanted of each kind, and keep each record as soon as its launch is over."""
        ends = budget.deadlines(trials)
        noted: set[str] = set()
        for line in (*budget.shortage(trials, gate.pending(trials)), *without_breakdown(run.study, trials)):
            self.observer.note(line)
        for number, kind in enumerate(RUN_KINDS):
            wanted = kind.trials(run.study, trials)
            if kind is not TIMED:  # steps are timed of what is admitted part by part; some is not reached
                wanted = gate.admit(
                    [each for each in wanted if run.timed.get(each.id) or not TIMED.launches(run.study, each)],
                    ends[number],
                )
            if not wanted:
                continue
            runs, schedule = kind.make(run, wanted)
            self._begin_proving(kind, schedule)
            self._note_problems(run.store, noted)
            deadline = partial(budget.end_of_launches, ends[number], kind, schedule)
            forks = executor.forks if kind is TIMED else 0
            launching = replace(executor, time_limit_s=kind.time_limit_s(run.study), forks=forks)
            left_out = BlockRunner(
                launching,
                runs,
                self._keeping(run.store, kind),
                self.observer,
                deadline,
                budget.grace_s,
                self.allocation,
                before_block=launching.import_for if forks else lambda _: None,
                after_block=self.observer.block_over if kind is TIMED else lambda: None,
                admit=partial(gate.admit_until, deadline),
                admit_late=partial(gate.admit_late, deadline),
            ).run(schedule)
            if kind is TIMED:
                run.timed = schedule.records
                if budget.total_s is not None and schedule.unfinished():
                    self.not_done += what_more_launches_show(schedule, budget.launch_s)
                # Those that an earlier run has timed, in time for their replays.
                gate.admit([trial for trial in wanted if run.timed.get(trial.id)], deadline())
            elif left_out:
                self.not_done.append(missing_launches(kind, left_out, budget))
            wanted = self._verdicts.refuse(wanted, {}, "failed")
            self._repeat(kind, run, executor, wanted, budget)
            if kind.is_result:
                self._leave_out_unmeasured(run.store, kind, runs, wanted, gate)
        self._find_largest_batches(executor, run.inputs, run.timed, budget.end, run.store.get("verdicts") or {})

    def _note_problems(self, store: Store, noted: set[str]) -> None:
        """Tell what of a results folder was set aside, each once."""
        for sentence in store.problems:
            if sentence not in noted:
                self.observer.note(sentence)
                noted.add(sentence)

    def _repeat(
        self, kind: RunKind[Any], run: RunInputs, executor: Executor, trials: Sequence[Trial], budget: Budget
    ) -> None:
        """Repeat steps of ``trials`` without timers, for the comparison; what never was in time has no rank."""
        if kind.repeat is None or not run.study.equivalence.enabled:
            return
        cancelled = threading.Event()
        replays = Replays(
            replace(executor, cancelled=cancelled),
            self.plan.folder / "equivalence",
            run.store.append_replay,
            self.observer,
            budget.at_once,
            took=lambda trial, seconds: self.durations.note("replay", trial, seconds),
        )
        began = budget.clock()
        with budget.ending(cancelled, budget.end):
            kind.repeat(replays, run, trials)
        took_s = budget.clock() - began
        executor.remove(replays.scratch)
        if not cancelled.is_set():
            self._unproven = {}
        elif cut := [
            each for each in trials if unrepeated_launches(each, self._good(each), run.store.replays(each.id))
        ]:
            budget.note_cut_replays(cut, took_s)
            self.not_done.append(missing_replays(cut))

    def _begin_proving(self, kind: RunKind[Any], schedule: Schedule[Trial, Any]) -> None:
        if kind is TIMED:
            self._unproven = schedule.records

    def _good(self, trial: Trial) -> list[Launch]:
        """Return the good timed launches of a trial, until they were repeated."""
        return [each for each in self._unproven.get(trial.id, ()) if each.status == "ok"]

    def _leave_out_unmeasured(
        self, store: Store, kind: RunKind[Any], runs: AbstractRuns[Trial, Any], trials: Sequence[Trial], gate: Gate
    ) -> None:
        """Give the trials without a record of a kind their verdict, with how far a launch is that goes on."""
        for trial in trials:
            if any(True for _ in store.iter_records(kind.records, trial.id)):
                continue
            kept = runs.kept_progress(trial, 0)
            begun = kept and (kept.is_begun or runs.folder(trial, 0).exists())
            why = NOT_CHECKED if trial.id in gate.unchecked else NOT_RUN
            self._verdicts.leave_out(trial, HALF_TRAINED.format(kept.in_words) if kept and begun else why)

    def _find_largest_batches(
        self,
        executor: Executor,
        inputs: TrialInputs,
        launches: Mapping[str, Sequence[Launch]],
        deadline: float | None,
        before: Mapping[str, TrialVerdict],
    ) -> None:
        """Search the largest batch of each trial that ran out of memory, unless an earlier run has done so."""
        search = BatchSearch(replace(executor, forks=0), inputs, self.observer, deadline)
        for trial in self.plan.expansion.trials:
            ended = launches.get(trial.id, ())
            full = [each for each in ended if OUT_OF_MEMORY in (each.reason or "")]
            if not full or any(each.status == "ok" for each in ended):
                continue
            verdict = before.get(trial.id)
            if verdict is None or not verdict["reason"].startswith(OUT_OF_MEMORY):
                found = search.run(trial, full[-1].wall_s)
                because = (full[-1].reason or "").removeprefix(f"{OUT_OF_MEMORY}: ")
                verdict = {"status": "failed", "reason": f"{OUT_OF_MEMORY}: {found.in_words()}: {because}"}
            self._verdicts.against[trial.id] = verdict

    def _implementations(self) -> dict[str, dict[str, str]]:
        """Return who implements the strategies that the frameworks themselves do not, by framework and strategy."""
        frameworks = {trial.framework for trial in self.plan.expansion.trials}
        return {name: self.plan.manifests[name].implementations for name in frameworks}

    def _keeping(self, store: Store, kind: RunKind[Any]) -> Callable[[TrialLaunch], None]:
        """Return ``store.append`` for records whose trial's folder somebody may remove during the run."""
        trials = {trial.id: trial for trial in self.plan.expansion.trials}

        def keep(record: TrialLaunch) -> None:
            if store.add_trial(trials[record.trial]):
                folder = self.plan.folder / "trials" / record.trial
                self.observer.note(f"{folder} was removed during the run, with its records; run again to repeat them")
            store.append(record)
            self.kept += 1
            if record.status == "ok":
                self.durations.note(kind.work, trials[record.trial], record.wall_s)

        return keep

    def _store(self) -> Store:
        require_folder_for_launches(self.plan.folder)
        require_own_files({path for trial in self.plan.expansion.trials if trial.own for path in trial.own.paths})
        resolved = self.plan.study.model_dump(mode="json")
        if Store.exists(self.plan.folder):
            store = Store.open(self.plan.folder)
            if self.allocation:
                self.allocation.await_own_lock(store, self.observer.note)
            before = store.study_json
            kept = store.set_study(self.plan.study_text, resolved)
            if kept:
                changed = [key for key in {**before, **resolved} if before.get(key) != resolved.get(key)]
                what = f"{', '.join(changed)} differ{'s' * (len(changed) == 1)}" if changed else "only its text differs"
                self.observer.note(
                    f"the study is not that of the earlier run ({what}), which is kept as {' and '.join(kept)}; "
                    "results of both stay in the folder"
                )
            return store
        return Store.create(self.plan.folder, study_text=self.plan.study_text, study_json=resolved)

    def _datasets(self, trials: Iterable[Trial], store: Store) -> dict[str, Dataset]:
        """Return the trials' datasets, and keep what of the user's folders is used and what is not."""
        own = datasets_with_skips(self.plan.study), readings_of(self.plan.study)
        found = prepare_datasets(dataset_names(trials), self.observer, *own)
        contents = {name: each.contents.as_json() for name, each in found.items() if name not in BUILTINS}
        if contents:
            store.put("datasets", {**(store.get("datasets") or {}), **contents})
        return found

    def _loaders(self, trials: Iterable[Trial], sources: Mapping[str, Dataset]) -> dict[str, dict[str, Any]]:
        """Return every trial's loader, over that form of its source which the loader reads; it is made where needed."""
        found: dict[str, dict[str, Any]] = {}
        stored: dict[tuple[Dataset, str], Dataset] = {}
        for trial in trials:
            own = {}
            if trial.dataset is not None:
                key = (sources[trial.id], trial.loader)
                if key not in stored:
                    stored[key] = prepare_stored_form(*key, self.observer)
                own = {trial.dataset: stored[key]}
            found[trial.id] = loader_of(trial, own)
        return found
