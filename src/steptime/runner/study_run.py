"""One run of a study: from its plan to the records of its launches, as a list of steps."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from steptime.clusters.site import Site
from steptime.datasets.dataset import Dataset
from steptime.foreign_writers import require_folder_for_launches
from steptime.interruption import Interrupted, shielded
from steptime.launchers.orphans import end_orphans
from steptime.measurements.machine import fingerprint
from steptime.measurements.records import Launch
from steptime.measurements.store import Store
from steptime.measurements.stored_record import TrialLaunch
from steptime.measurements.tiers import merged_tiers
from steptime.measurements.verdicts import TrialVerdict
from steptime.runner.admission import Admission
from steptime.runner.allocation import Allocation
from steptime.runner.block_runner import LOADER_SHARE, TRAINING_SHARE, BlockRunner, deadlines
from steptime.runner.equivalence.loaders import LoaderInput
from steptime.runner.executor import OUT_OF_MEMORY, Executor
from steptime.runner.expansion import skipped_in_words
from steptime.runner.jobs import AblationSchedule
from steptime.runner.largest_batch import BatchSearch
from steptime.runner.plan import StudyPlan
from steptime.runner.preparation import (
    datasets_with_skips,
    loader_of,
    prepare_datasets,
    prepare_stored_form,
    reference_loader_of,
    training_split,
)
from steptime.runner.progress import KeptProgress, Observer
from steptime.runner.site import probe_site
from steptime.runner.training_runs import TrainingRuns, training_schedule
from steptime.runner.trial_runs import (
    TrialInputs,
    ablation_runs,
    ablation_schedule,
    loader_runs,
    loader_schedule,
    timed_runs,
    timed_schedule,
    timing_of,
)
from steptime.runner.verdicts import HALF_TRAINED, NOT_RUN, TrialCounts, Verdicts
from steptime.study.loaders import SYNTHETIC
from steptime.study.study import Study
from steptime.study.trial import Trial
from steptime.workloads.table import build_workload

KeptRecord = TypeVar("KeptRecord", bound=TrialLaunch)


@dataclass(frozen=True)
class _Deadlines:
    """When the launches of each kind must end, on the monotonic clock; None for no budget."""

    timed: float | None
    apart: float | None
    alone: float | None
    all: float | None

    @classmethod
    def of(cls, study: Study, budget_s: float | None, now: float, *, mixed: bool) -> "_Deadlines":
        """Share the budget; ``mixed``: whether a study times steps and trains as well."""
        if budget_s is None:
            return cls(None, None, None, None)
        measured_s = budget_s * (1.0 - TRAINING_SHARE) if mixed else budget_s
        before_s = measured_s * (1.0 - LOADER_SHARE) if study.loader_alone else measured_s
        timed, apart = deadlines(before_s, ablation=study.breakdown is not None, now=now)
        return cls(timed, apart, now + measured_s, now + budget_s)


@dataclass
class StudyRun:
    """One run of a study into a results folder; what is there already is not repeated."""

    plan: StudyPlan
    observer: Observer
    allocation: Allocation | None = None
    """That the run is in."""
    kept: int = 0
    """Launches that this run has kept."""
    _site: Site | None = None
    """The hosts of the study, as they were found."""
    _verdicts: Verdicts = field(default_factory=Verdicts)

    def run(self) -> TrialCounts:
        """Prepare, check, launch and store.

        Raises StoreError when the folder is in use, and Interrupted when a signal stops it; everything
        measured before is kept. Raises Unfinished where its allocation has no time left for another launch.
        """
        self.plan.check_isolation()
        end_orphans()
        study, store = self.plan.study, self._store()
        with store.lock(), self._kept_progress():
            store.set_machine(fingerprint())
            if self.plan.site is not None:
                needed = self.plan.needed_paths()
                self._settle_on(probe_site(self.plan.site, store, self.observer, "steptime submit STUDY", needed))
            store.put("skipped", {"lines": skipped_in_words(self.plan.expansion.skipped)})
            store.put("tiers", merged_tiers(store.get("tiers") or {}, self.plan.expansion.tiers))
            store.put("implementations", {**(store.get("implementations") or {}), **self._implementations()})
            for trial in self.plan.expansion.trials:
                store.add_trial(trial)
            try:
                workloads = {
                    t.id: build_workload(t.workload, t.input_shape, t.classes) for t in self.plan.expansion.trials
                }
                admission = Admission(self.plan, self._site, self.observer, self._verdicts)
                trials = admission.startable(admission.fitting(workloads))
                executor, trials = admission.executor(trials, store)
                trials = admission.startable(trials)  # some environments bring what their launcher needs
                datasets = prepare_datasets(
                    {t.dataset for t in trials if t.dataset}, self.observer, datasets_with_skips(study)
                )
                splits = {t.id: found for t in trials if (found := training_split(t, datasets))}
                sources = {
                    t.id: splits[t.id].training if t.id in splits else datasets[t.dataset] for t in trials if t.dataset
                }
                loaders = self._loaders(trials, sources)
                checked = {
                    t.id: LoaderInput(loaders[t.id], reference_loader_of(t, sources[t.id], loaders[t.id]))
                    for t in trials
                    if t.loader != SYNTHETIC.name
                }
                trials = admission.equivalent(store, executor, trials, workloads, checked)
                self._verdicts.accept(trials, self.plan.manifests)
                inputs = TrialInputs(self.plan.folder, workloads, loaders)
                # Environments, datasets and checks are made once per machine; the budget is for what every run does.
                trained = [trial for trial in trials if trial.training]
                trials = [trial for trial in trials if not trial.training]
                until = _Deadlines.of(study, self.plan.budget_s, time.monotonic(), mixed=bool(trained and trials))
                timed = timed_schedule(study, trials, store)
                for sentence in store.problems:
                    self.observer.note(sentence)
                runs = timed_runs(inputs, timing_of(study), timed)
                keep = self._keeping(store, store.append)
                BlockRunner(
                    executor,
                    runs,
                    keep,
                    self.observer,
                    until.timed,
                    self.allocation,
                    after_block=self.observer.block_over,
                ).run(timed)
                self._explain(store, executor, trials, inputs, timed.records, until)
                if trained:
                    self._train(store, executor, trained, TrainingRuns(inputs, splits), until.all)
                self._find_largest_batches(executor, inputs, timed.records, until.all, store.get("verdicts") or {})
                for trial in trials:
                    if not timed.records.get(trial.id):
                        self._verdicts.leave_out(trial, NOT_RUN)
            finally:
                with shielded():
                    self._verdicts.keep(store)
        return self._verdicts.counts(store, self.plan.expansion.trials)

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
            yield
        except BaseException as error:
            how = f"interrupted by {error}" if isinstance(error, Interrupted) else str(error)
            raise
        finally:
            self.observer = shown
            with shielded():
                kept.end(how)

    def _explain(  # noqa: PLR0913, PLR0917 - what a run has prepared
        self,
        store: Store,
        executor: Executor,
        trials: list[Trial],
        inputs: TrialInputs,
        timed: Mapping[str, Sequence[Launch]],
        until: "_Deadlines",
    ) -> None:
        """Take the steps of timed trials apart, and time their loaders alone, where the study asks for either."""
        study = self.plan.study
        if study.breakdown is not None:
            ablation = AblationSchedule(study.steps.warmup, study.breakdown.seconds)
            schedule = ablation_schedule(study, trials, store, timed, ablation.seconds)
            keep_ablation = self._keeping(store, store.append_ablation)
            apart = ablation_runs(inputs, ablation)
            BlockRunner(executor, apart, keep_ablation, self.observer, until.apart, self.allocation).run(schedule)
        if study.loader_alone is not None:
            alone = loader_runs(inputs, study.loader_alone.seconds, executor.hosts)
            keep_alone = self._keeping(store, store.append_loader)
            schedule_alone = loader_schedule(study, trials, store, timed)
            BlockRunner(executor, alone, keep_alone, self.observer, until.alone, self.allocation).run(schedule_alone)

    def _find_largest_batches(
        self,
        executor: Executor,
        inputs: TrialInputs,
        launches: Mapping[str, Sequence[Launch]],
        deadline: float | None,
        before: Mapping[str, TrialVerdict],
    ) -> None:
        """Search the largest batch of each trial that ran out of memory, unless an earlier run has done so."""
        search = BatchSearch(executor, inputs, self.observer, deadline)
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

    def _train(
        self, store: Store, executor: Executor, trials: list[Trial], runs: TrainingRuns, until: float | None
    ) -> None:
        """Train every trial with every seed, instead of timing its steps."""
        study = self.plan.study
        limit = study.training.time_limit if study.training else study.time_limit
        schedule = training_schedule(study, trials, store, runs)
        keep = self._keeping(store, store.append_training)
        BlockRunner(replace(executor, time_limit_s=limit), runs, keep, self.observer, until, self.allocation).run(
            schedule
        )
        for trial in trials:
            if not store.trainings(trial.id):
                kept = runs.kept_progress(trial, 0)
                begun = kept.is_begun or runs.folder(trial, 0).exists()
                reason = HALF_TRAINED.format(kept.in_words) if begun else NOT_RUN
                self._verdicts.leave_out(trial, reason)

    def _implementations(self) -> dict[str, dict[str, str]]:
        """Return who implements the strategies that the frameworks themselves do not, by framework and strategy."""
        frameworks = {trial.framework for trial in self.plan.expansion.trials}
        return {name: self.plan.manifests[name].implementations for name in frameworks}

    def _keeping(self, store: Store, append: Callable[[KeptRecord], None]) -> Callable[[KeptRecord], None]:
        """Return ``append`` for records whose trial's folder somebody may remove during the run."""
        trials = {trial.id: trial for trial in self.plan.expansion.trials}

        def keep(record: KeptRecord) -> None:
            if store.add_trial(trials[record.trial]):
                folder = self.plan.folder / "trials" / record.trial
                self.observer.note(f"{folder} was removed during the run, with its records; run again to repeat them")
            append(record)
            self.kept += 1

        return keep

    def _store(self) -> Store:
        require_folder_for_launches(self.plan.folder)
        resolved = self.plan.study.model_dump(mode="json")
        if Store.exists(self.plan.folder):
            store = Store.open(self.plan.folder)
            if self.allocation:
                self.allocation.await_own_lock(store, self.observer.note)
            before = store.study_json
            kept = store.set_study(self.plan.study_text, resolved)
            if kept:
                changed = [key for key in {**before, **resolved} if before.get(key) != resolved.get(key)]
                what = f"{', '.join(changed)} differ" if changed else "only its text differs"
                self.observer.note(
                    f"the study is not that of the earlier run ({what}), which is kept as {' and '.join(kept)}; "
                    "results of both stay in the folder"
                )
            return store
        return Store.create(self.plan.folder, study_text=self.plan.study_text, study_json=resolved)

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
