"""The equivalence check of a study: which checks its trials need, each from the cache or run now.

A check launches the probes of a framework and strategy, and compares each with what the reference computes.

The kept results of checks: a check is repeated when anything that it depends on has changed.
"""

import contextlib
import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import steptime
from steptime.catalog.manifest import Manifest
from steptime.catalog.workloads.layers import Workload
from steptime.environments.kinds import ReadyEnvironment
from steptime.equivalence.loaders import LoaderCase, LoaderInput, loader_cases
from steptime.equivalence.oracle import Oracle, Truth
from steptime.equivalence.own_module import inspect
from steptime.equivalence.probes import Probe, check_trial, form_of, probes
from steptime.equivalence.verdict import Findings
from steptime.execution.executor import Executor
from steptime.execution.progress import Observer
from steptime.results.equivalence_records import EquivalenceResult, read_equivalence
from steptime.results.machine import fingerprint
from steptime.study.trial import Trial
from steptime.validity.verdicts import failure

_PACKAGE = Path(steptime.__file__).parent
_OF_MACHINE = ("cpu", "architecture", "gpus", "gpu_driver")
"""Facts of a machine on which the result of a check depends."""
_PARTIAL = ".partial"
_ABANDONED_S = 60.0
"""Since a partial file was written: whoever wrote it is gone, since it is written in one piece and renamed."""


class CheckCache:
    """One small file per check; only passed checks are kept, so that a failure is always looked at afresh."""

    def __init__(
        self,
        folder: Path,
        reference: Manifest,
        package: Path = _PACKAGE,
        machine: Mapping[str, Any] | None = None,
        *,
        renewed: bool = False,
    ) -> None:
        """Open the cache.

        Args:
            folder: of the files; made when the first is kept.
            reference: the manifest of the framework that all others are compared with.
            package: steptime's own folder, with the code of workers and libraries.
            machine: as ``fingerprint`` returns it; this one by default.
            renewed: whether what other runs kept is made again.
        """
        self._renewed = renewed
        machine = fingerprint() if machine is None else machine
        # The same code computes in other ways on another processor or GPU, and with another driver.
        self._machine = json.dumps([machine.get(name) for name in _OF_MACHINE])
        self._folder = folder
        self._package = package
        own = package / "equivalence"
        self._shared = _digest_files(package / "worker") + _digest_files(own) + self._digest_framework(reference)

    def key(self, trial: Trial, workload: Workload, manifest: Manifest, ready: ReadyEnvironment, setting: str) -> str:
        """Return the name under which a check is kept.

        It covers the code of the check, of the worker half, of both frameworks and of the libraries that they share,
        the environment's packages, the machine's processor, GPUs and driver, the workload, the configuration and
        ``setting``, which describes the check.
        """
        parts = [
            self._shared,
            self._machine,
            self._digest_framework(manifest),
            json.dumps(ready.packages, sort_keys=True),
            ready.python_version,
            json.dumps(workload.to_json(), sort_keys=True),
            trial.model_dump_json(),
            setting,
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def get(self, key: str) -> EquivalenceResult | None:
        """Return the kept result; None when there is none, it cannot be read, or it is none of a passed check."""
        if self._renewed:
            return None
        try:
            kept = read_equivalence((self._folder / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return kept if kept.passed is True else None

    def put(self, key: str, result: EquivalenceResult) -> str | None:
        """Keep ``result`` if it passed; return why the cache cannot keep it, where that is so.

        A cache that cannot be written (another user's, a read-only one) costs a repetition of the check, not the run.
        Every writer has a partial file of its own, since several may keep the same check at once.
        """
        if not result.passed:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._folder, prefix=f"{key}.", suffix=_PARTIAL, delete=False
            ) as file:
                try:
                    file.write(json.dumps(result.to_json()))
                    file.close()
                    Path(file.name).replace(self._folder / f"{key}.json")
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
            self._remove_abandoned()
        except OSError as error:
            return f"checks cannot be kept in {self._folder} ({error.strerror}), so that the next run repeats them"
        return None

    def _remove_abandoned(self) -> None:
        """Remove the partial files of processes that were killed while they wrote one."""
        for left in self._folder.glob(f"*{_PARTIAL}"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    left.unlink()

    def _digest_framework(self, manifest: Manifest) -> str:
        libraries = (self._package / "libraries" / name for name in manifest.libraries)
        return "".join(map(_digest_files, [manifest.folder, *libraries]))


def _digest_files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml"), *folder.rglob("*.txt")]):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Case:
    """One check: a small trial that stands for all trials that differ in speed only, or have the same loader."""

    trial: Trial
    stands_for: tuple[str, ...]
    """The ids of the trials that it stands for."""
    loader: LoaderCase | None = None
    """None of synthetic batches."""


def equivalence_cases(trials: Sequence[Trial], manifests: Mapping[str, Manifest]) -> list[Case]:
    """Return the checks that ``trials`` need, each once, in the order of the trials."""
    covered: dict[str, list[str]] = {}
    small: dict[str, Trial] = {}
    for trial in trials:
        check = check_trial(trial, manifests[trial.framework])
        small.setdefault(check.id, check)
        covered.setdefault(check.id, []).append(trial.id)
    return [Case(check, tuple(covered[key])) for key, check in small.items()]


def _begun_apart(cases: Sequence[Case]) -> list[Case]:
    """Return ``cases`` with the first of each truth ahead, the others in their order.

    Checks of one truth that begin side by side all wait for the reference, which computes it on one core.
    """
    begun: set[tuple[str, int, bool]] = set()
    firsts: list[Case] = []
    others: list[Case] = []
    for each in cases:
        truth = (each.trial.workload, each.trial.workers, each.loader is None)
        (others if truth in begun else firsts).append(each)
        begun.add(truth)
    return [*firsts, *others]


@dataclass(frozen=True)
class Checker:
    """Runs checks in a scratch folder."""

    executor: Executor
    scratch: Path
    steps: int
    """Of a launch, at most."""
    repeats: int
    """Launches of every kind of probe."""
    of_reference: Executor | None = None
    """Launches the reference where it is asked for the right answer; ``executor`` where None."""

    @cached_property
    def oracle(self) -> Oracle:
        """What knows the right answers; it remembers some of them."""
        return Oracle(self.of_reference or self.executor, self.scratch)

    def check(
        self,
        trial: Trial,
        workload: Workload,
        truth_of: Callable[[Probe], Truth | str],
        version: str,
        wanted: Iterable[Probe] | None = None,
    ) -> EquivalenceResult:
        """Launch the probes of ``trial``, or those ``wanted``, and compare each with its truth until one fails."""
        found = Findings(trial, workload)
        steps = self.steps
        if workload.own is not None:
            inspection = inspect(self.oracle, trial, workload, self.steps)
            if isinstance(inspection, str):
                found.reasons.append(inspection)
                return found.result(version)
            steps, found.explanation = inspection.steps, inspection.explanation
        if wanted is None:
            form = form_of(trial, self.executor.manifests[trial.framework])
            wanted = probes(trial, workload, steps, self.repeats, form)
        for number, each in enumerate(wanted):
            probe = self.oracle.clipping(each, workload)
            truth = truth_of(probe)
            if isinstance(truth, str):
                found.reasons.append(truth)
                break
            job = probe.job(workload, truth.learning_rate)
            folder = self.scratch / f"{trial.id}-{number}"
            # Checks run side by side, which pins would put on the same cores.
            ran = self.executor.launch(probe.trial, job, folder, last_record="check", pinned=False)
            if ran.crashed:
                found.note_crash()
                ran = self.executor.launch(probe.trial, job, folder, last_record="check", pinned=False)
            beside = partial(self.oracle.beside, probe, workload)
            found.add(probe, ran, folder, truth, beside)
            if found.reasons:
                break
        return found.result(version)


@dataclass
class EquivalenceCheck:
    """Checks trials and remembers which of them must not be ranked."""

    checker: Checker
    cache: CheckCache
    workloads: Mapping[str, Workload]
    """By trial id."""
    keep: Callable[[EquivalenceResult], None]
    """Called with every result, in this thread or another, one at a time."""
    observer: Observer
    inputs: Mapping[str, LoaderInput] = field(default_factory=dict)
    """By trial id, of those trials that read a dataset: what their loaders read."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a trial did not pass, by trial id."""
    took: Callable[[Case, float, bool], None] = lambda *_: None
    """Called with the seconds of every check, and whether it was over then, or ended before its time."""
    _over: list[Case] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._truths: dict[str, Truth | str] = {}
        self._truth_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._cache_refused = False

    def run(
        self, trials: Sequence[Trial], *, side_by_side: int, may_begin: Callable[[Case], bool] = lambda _: True
    ) -> None:
        """Check all ``trials``; nothing is timed here, so checks may run ``side_by_side``.

        Each that is not kept is made if ``may_begin`` allows it when its turn comes.
        """
        cases = self.cases(trials)
        # What is kept comes first, so that it is known how many checks are still to be made.
        kept = [self.cache.get(self._key(case)) is not None for case in cases]
        made = _begun_apart([case for case, is_kept in zip(cases, kept, strict=True) if not is_kept])
        cases = [case for case, is_kept in zip(cases, kept, strict=True) if is_kept] + made
        over = len(self._over)
        self.observer.stage("Checking that all frameworks compute the same", over + len(cases), over)
        self.checker.executor.do_side_by_side(partial(self._check, may_begin=may_begin), cases, side_by_side)
        self.checker.executor.remove(self.checker.scratch)

    def cases(self, trials: Sequence[Trial]) -> list[Case]:
        """Return the checks that ``trials`` need, kept or not."""
        manifests = self.checker.executor.manifests
        of_loaders = [Case(each.trial, each.stands_for, each) for each in loader_cases(trials, manifests, self.inputs)]
        return equivalence_cases(trials, manifests) + of_loaders

    def pending(self, trials: Sequence[Trial]) -> list[Case]:
        """Return those that are not kept and were not made."""
        return [
            each
            for each in self.cases(trials)
            if self.cache.get(self._key(each)) is None and all(each != over for over in self._over)
        ]

    def _check(self, case: Case, may_begin: Callable[[Case], bool]) -> None:
        trial, workload, executor = case.trial, self._workload(case), self.checker.executor
        key = self._key(case)
        result = self.cache.get(key)
        kept = result is not None
        what = f"{trial.framework} {trial.strategy}, {trial.workload}"
        if result is None:
            if not may_begin(case):
                return
            self.observer.working_on(what)
            distribution = executor.manifests[trial.framework].distribution.lower()
            version = executor.environment(trial).packages.get(distribution, "unknown")
            truth_of = partial(self.truth, workload=workload)
            wanted, began = [case.loader.probe] if case.loader else None, time.monotonic()
            result = self.checker.check(trial, workload, truth_of, version, wanted)
            is_over = result.passed or not executor.cancelled.is_set()
            result = replace(result, checked_at=datetime.now(UTC).isoformat(timespec="seconds"))
            self.took(case, time.monotonic() - began, is_over)
            if not is_over:
                return  # ended before its time, which proves nothing about the framework
        with self._lock:
            self._over.append(case)
            refused = self.cache.put(key, result)
            if refused and not self._cache_refused:
                self._cache_refused = True
                self.observer.note(refused)
            of_options = None if case.loader else executor.manifests[trial.framework].unranked(trial.options)
            self.keep(replace(result, trials=list(case.stands_for), unranked=of_options, kept=kept))
            if not result.passed:
                for each in case.stands_for:
                    self.failures[each] = failure(result)
        self.observer.finished(what, ok=result.passed, kept=kept)

    def _workload(self, case: Case) -> Workload:
        return case.loader.workload if case.loader else self.workloads[case.stands_for[0]]

    def _key(self, case: Case) -> str:
        """Return the name under which the result of a check is kept."""
        trial, executor = case.trial, self.checker.executor
        setting = f"{self.checker.steps} steps, {self.checker.repeats} repeats"
        if case.loader:
            setting = json.dumps(case.loader.probe.loader)
        manifest, ready = executor.manifests[trial.framework], executor.environment(trial)
        return self.cache.key(trial, self._workload(case), manifest, ready, setting)

    def truth(self, probe: Probe, workload: Workload) -> Truth | str:
        """Return what is right of ``probe``, computed once for all frameworks."""
        trial = probe.trial
        key = f"{trial.workload}/{trial.input_shape}/{trial.classes}/{trial.workers}/{trial.batch_per_worker}"
        smoothing = trial.training.label_smoothing if trial.training else 0.0
        key += f"/{trial.seed}/{trial.precision}/{trial.optimizer.model_dump_json()}/{smoothing}"
        if trial.own:  # built in the environment of its framework, of whose packages it is made
            key += f"/{trial.framework}/{trial.device}/{trial.environment_name}/{trial.own.digest}"
        key += f"/{probe.rates}/{json.dumps(probe.reference_loader)}"
        key += f"/{probe.answer}/{probe.rounds}/{probe.turns}/{probe.batches}/{sorted(probe.settings.items())}"
        with self._lock:
            lock = self._truth_locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._truths:
                self._truths[key] = self.checker.oracle.truth(probe, workload)
            return self._truths[key]
