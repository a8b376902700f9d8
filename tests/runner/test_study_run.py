"""One run of a study in a folder that has a past, and that somebody changes meanwhile."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from image_folders import write_flat_validation, write_folder, write_many
from small_study import CHECKED_STUDY, STUDY

from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import TrialSummary
from steptime.catalog.manifest import Manifest
from steptime.catalog.workloads.table import build_workload
from steptime.cli.app import run_program
from steptime.environments.spec import EnvironmentSpec
from steptime.equivalence.check import Checker, EquivalenceCheck
from steptime.equivalence.replay import Replays
from steptime.errors import EnvironmentFailure, StoreError
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.progress import Silent
from steptime.interruption import Interrupted
from steptime.launchers.fork_servers import Preloading
from steptime.launchers.request import LaunchOutcome
from steptime.results.store import Store
from steptime.runner import admission, study_run
from steptime.runner.admission import Admission
from steptime.runner.plan import plan_study
from steptime.runner.preparation import Prepared
from steptime.runner.study_run import StudyRun
from steptime.study.trial import Trial


class Notes(Silent):
    """An observer that keeps notes, and calls ``afterwards`` when a launch is over."""

    def __init__(self, afterwards: Any = lambda: None) -> None:
        self.notes: list[str] = []
        self._afterwards = afterwards

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None:  # noqa: ARG002 - as every observer
        self._afterwards()


def run(folder: Path, text: str = STUDY, observer: Silent | None = None) -> Store:
    (folder / "small.yaml").write_text(text)
    StudyRun(plan_study(str(folder / "small.yaml"), [], folder / "results", None), observer or Silent()).run()
    return Store.open(folder / "results")


@pytest.fixture
def without_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run do everything but launch."""

    def runner(*_fields: Any, admit: Any, **_named: Any) -> SimpleNamespace:
        return SimpleNamespace(run=lambda schedule: len(admit(schedule.configurations)))

    monkeypatch.setattr(study_run, "BlockRunner", runner)


@pytest.mark.usefixtures("without_launches")
def test_the_study_of_an_earlier_run_is_kept_under_another_name(tmp_path):
    run(tmp_path)
    run(tmp_path, STUDY.replace("batch_per_worker: 4", "batch_per_worker: 8"))

    assert (tmp_path / "results" / "study-1.yaml").read_text() == STUDY
    assert "batch_per_worker: 8" in (tmp_path / "results" / "study.yaml").read_text()


@pytest.mark.usefixtures("without_launches")
def test_a_run_says_what_of_the_earlier_study_differs(tmp_path):
    run(tmp_path)
    observer = Notes()
    run(tmp_path, STUDY.replace("min: 2, max: 2", "min: 2, max: 3"), observer)

    (note,) = observer.notes
    assert "launches differ" in note
    assert "study-1.yaml" in note


@pytest.mark.usefixtures("without_launches")
def test_the_same_study_leaves_one_copy(tmp_path):
    run(tmp_path)
    run(tmp_path)

    assert not list((tmp_path / "results").glob("study-*"))


@pytest.mark.usefixtures("without_launches")
def test_verdicts_on_trials_of_an_earlier_study_stay(tmp_path):
    store = run(tmp_path)
    verdict = {"status": "not_equivalent", "reason": "did not pass the equivalence check"}
    store.put("verdicts", {"an-earlier-trial": verdict})
    run(tmp_path, STUDY.replace("batch_per_worker: 4", "batch_per_worker: 8"))

    assert store.get("verdicts")["an-earlier-trial"] == verdict


@pytest.mark.usefixtures("without_launches")
def test_a_check_names_the_trials_that_it_stands_for(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    store = run(tmp_path, CHECKED_STUDY.replace("batch_per_worker: 4", "batch_per_worker: [4, 8]"))

    (check,) = store.equivalence()
    assert sorted(check.trials) == sorted(trial.id for trial in store.trials())
    assert len(check.trials) == 2


@pytest.mark.usefixtures("without_launches")
def test_a_verdict_that_no_longer_holds_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "memory_shortage", lambda *_, **_limits: "does not fit the memory")
    assert run(tmp_path).get("verdicts")
    monkeypatch.setattr(admission, "memory_shortage", lambda *_, **_limits: None)

    assert "memory" not in str(run(tmp_path).get("verdicts"))


def test_a_trial_that_changes_what_is_computed_is_measured_and_has_no_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(Manifest, "unranked", lambda _manifest, _options: "compression: fp16 changes what is computed")
    summary = summarise(run(tmp_path))

    (trial,) = summary.trials
    assert (trial.status, trial.reason) == ("unranked", "compression: fp16 changes what is computed")
    assert trial.throughput_samples_per_s.value
    assert summary.ranking == []


def test_a_trial_that_alters_the_training_is_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(Manifest, "altering", lambda _manifest, _options: "compression: 2bit")
    monkeypatch.setattr(Checker, "check", lambda *_: pytest.fail("it was checked"))

    (trial,) = summarise(run(tmp_path, CHECKED_STUDY)).trials
    assert (trial.status, trial.launches) == ("unranked", 2)


def end_of_time(replays: Replays, *_launches: Any) -> None:
    """End as where a budget is spent."""
    replays.executor.cancelled.set()


ENDS = {"spent budget": None, "SIGTERM": Interrupted(signal.SIGTERM), "full disk": StoreError("the disk is full")}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_run_that_ends_before_its_replays_leaves_what_was_proven_and_ranks_nothing_else(tmp_path, monkeypatch, end):
    def begin_replays(replays: Replays, *launches: Any) -> None:
        if end is not None:
            raise end
        end_of_time(replays, *launches)

    def ended(text: str) -> TrialSummary:
        with monkeypatch.context() as patch:
            patch.setattr(Replays, "run", begin_replays)
            with nullcontext() if end is None else pytest.raises(type(end)):
                run(tmp_path, text)
        return summarise(Store.open(tmp_path / "results")).trials[0]

    longer = CHECKED_STUDY.replace("min: 2, max: 2", "min: 4, max: 4").replace("min: 1, max: 2}", "min: 9, max: 9}")
    first = ended(CHECKED_STUDY)
    assert (first.status, first.launches) == ("unranked", 2)
    assert (
        first.reason
        == "not ranked: the run ended before its timed steps were repeated without timers; rerun to continue"
    )
    assert summarise(run(tmp_path, CHECKED_STUDY)).trials[0].status == "ok"
    later = ended(longer)
    assert (later.status, later.launches) == ("ok", 4)
    assert any("no replay of 2 of 4 launches" in flag for flag in later.flags)
    (whole,) = summarise(run(tmp_path, longer)).trials
    assert not any("no replay" in flag for flag in whole.flags)


def test_replays_that_a_budget_ends_are_named_by_their_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(Replays, "run", end_of_time)
    (tmp_path / "small.yaml").write_text(CHECKED_STUDY)
    unended = StudyRun(plan_study(str(tmp_path / "small.yaml"), [], tmp_path / "results", None), Silent())
    counts = unended.run()

    assert (counts.ok, counts.failed, counts.not_run) == (0, 0, 1)
    (line,) = unended.not_done
    assert line.endswith("rerun to repeat those of: reference single, lenet5, synthetic loader, 1 worker")


def test_a_trial_whose_folder_is_removed_during_the_run_is_begun_anew(tmp_path):
    removed = []

    def remove() -> None:
        if not removed:
            removed.extend(tmp_path.glob("results/trials/*"))
            shutil.rmtree(removed[0])

    observer = Notes(remove)
    store = run(tmp_path, observer=observer)

    assert "was removed during the run" in observer.notes[0]
    assert [launch.status for launch in store.launches(removed[0].name)] == ["ok"]


def test_a_study_that_comes_through_a_pipe_is_read_once_and_whole(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, STUDY.encode())
    os.close(writer)
    plan = plan_study(f"/dev/fd/{reader}", [], tmp_path / "results", None)
    os.close(reader)

    assert plan.study_text == STUDY
    assert plan.resuming() == f"steptime run {tmp_path}/results/study.yaml -o {tmp_path}/results"


class Stopped:
    """An executor whose launches are cancelled, as Ctrl-C does with those of other threads."""

    do_side_by_side = Executor.do_side_by_side

    def __init__(self) -> None:
        ready = SimpleNamespace(packages={}, python_version="3.11.0")
        manifest = SimpleNamespace(launcher_for=lambda *_: "local", distribution="made-up")
        self.environment = lambda _trial: ready
        self.manifests = dict.fromkeys(["reference"], manifest)
        self.cancelled = threading.Event()
        self.preloading, self.forks = Preloading(), 0

    def remove(self, _folder: Path) -> None: ...

    def launch(self, _trial: Trial, _job: Mapping[str, Any], _folder: Path, **_how: Any) -> LaunchResult:
        self.cancelled.set()
        outcome = LaunchOutcome(ok=False, reason="cancelled", wall_s=0.1, commands=[])
        return LaunchResult(outcome, Collected({}), "cancelled", {})


def test_a_check_that_an_interruption_ended_is_no_failure(tmp_path):
    (tmp_path / "small.yaml").write_text(STUDY)
    (trial,) = plan_study(str(tmp_path / "small.yaml"), [], None, None).expansion.trials
    kept: list[Any] = []
    check = EquivalenceCheck(
        checker=Checker(Stopped(), tmp_path / "scratch", steps=2, repeats=1),
        cache=SimpleNamespace(key=lambda *_: "key", get=lambda _: None, put=lambda *_: None),
        workloads={trial.id: build_workload("lenet5")},
        keep=kept.append,
        observer=Silent(),
    )
    check.run([trial], side_by_side=1)

    assert kept == []
    assert check.failures == {}


@pytest.mark.costly
@pytest.mark.usefixtures("without_launches")
def test_checks_of_an_earlier_run_are_made_again_where_that_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    run(tmp_path, CHECKED_STUDY)
    observer = Finished()
    plan = plan_study(str(tmp_path / "small.yaml"), [], tmp_path / "results", None)
    StudyRun(plan, observer, recheck=True).run()

    assert {kept for _, kept in observer.items} == {False}


class Finished(Silent):
    """An observer that keeps which items are over, and whether their results were there already."""

    def __init__(self) -> None:
        self.items: list[tuple[str, bool]] = []

    def finished(self, what: str, *, ok: bool = True, kept: bool = False) -> None:  # noqa: ARG002 - as every observer
        self.items.append((what, kept))


@pytest.mark.usefixtures("without_launches")
def test_checks_of_an_earlier_run_come_first_and_are_told_from_those_that_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Admission, "checks_at_once", lambda *_: 1)
    run(tmp_path, CHECKED_STUDY.replace("workers: [1]", "workers: [2]"))
    observer = Finished()
    run(tmp_path, CHECKED_STUDY.replace("workers: [1]", "workers: [1, 2]"), observer)

    assert observer.items == [("reference allreduce, lenet5", True), ("reference single, lenet5", False)]
    first, again, new = Store.open(tmp_path / "results").equivalence()
    assert [each.kept for each in (first, again, new)] == [False, True, False]
    assert first.checked_at == again.checked_at <= new.checked_at


DIGITS = STUDY.replace("{name: lenet5,", "{name: lenet5, dataset: digits,").replace("synthetic", "native")


@pytest.mark.parametrize(("study", "wanted"), [(DIGITS, ["reference", "data"]), (STUDY, ["reference"])])
def test_the_environment_that_makes_datasets_is_made_beside_those_of_frameworks(tmp_path, monkeypatch, study, wanted):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    asked = []

    def prepare(specs: Iterable[EnvironmentSpec], _observer: Silent) -> Prepared:
        asked.append([spec.name for spec in specs])
        raise Interrupted(2)

    monkeypatch.setattr(admission, "prepare_environments", prepare)
    with pytest.raises(Interrupted):
        run(tmp_path, study)

    assert asked == [wanted]


def test_a_run_whose_datasets_cannot_be_made_ends_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(admission, "prepare_environments", lambda *_: Prepared(failures={"data": "the disk is full"}))
    with pytest.raises(EnvironmentFailure, match="the disk is full"):
        run(tmp_path, DIGITS)


@pytest.fixture
def touching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study, in the current folder, that names a program as its interpreter; return what the program would make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    program, proof = tmp_path / "python", tmp_path / "proof"
    program.write_text(f"#!/bin/sh\ntouch {proof}\n")
    program.chmod(0o700)
    (tmp_path / "small.yaml").write_text(
        STUDY.replace("[reference]", "[pytorch]") + "environments: {pytorch: {kind: existing, python: ./python}}\n"
    )
    return proof


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_dry_run_starts_no_program_that_the_study_names(touching, capsys, monkeypatch, form):
    monkeypatch.setenv("COLUMNS", "400")
    assert run_program(["run", "small.yaml", "--dry-run", *form]) == 0
    assert not touching.exists()
    assert f"pytorch with {touching.with_name('python')}, as the study has it" in capsys.readouterr().out


def test_a_run_names_the_programs_of_the_study_before_it_starts_them(touching, monkeypatch, capsys):
    monkeypatch.setattr(StudyRun, "run", lambda _self: pytest.exit("not reached") if touching.exists() else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_program(["run", "small.yaml", "-o", "results"])

    assert f"runs pytorch with {touching.with_name('python')}, as the study has it" in " ".join(
        capsys.readouterr().err.split()
    )


PICTURES = STUDY.replace("{name: lenet5, ", "{name: lenet5, dataset: ./mine, image: 28, ").replace(
    "synthetic", "native"
)
USED = "mine: 6 images of 2 classes; left out: 4 in val, which has no classes"


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study that trains on a folder of images, of which some are not used."""
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)
    write_flat_validation(tmp_path / "mine")
    (tmp_path / "small.yaml").write_text(PICTURES)
    return tmp_path


@pytest.mark.usefixtures("pictures")
def test_a_plan_says_what_of_a_folder_of_images_is_not_used(capsys):
    assert run_program(["run", "small.yaml", "--dry-run"]) == 0
    assert f"/{USED}\n" in capsys.readouterr().out


def test_a_plan_in_json_counts_what_of_a_folder_of_images_is_not_used(pictures, capsys):
    run_program(["run", "small.yaml", "--dry-run", "--json"])

    left_out = [{"reason": "no_classes", "kind": "val", "count": 4}]
    contents = {"samples": 6, "classes": 2, "validation": 0, "left_out": left_out}
    assert json.loads(capsys.readouterr().out)["datasets"] == {str(pictures / "mine"): contents}


def test_a_plan_says_what_of_a_folder_for_validation_is_not_used(pictures, capsys):
    write_many(write_folder(pictures / "own") / "cat", ["0.webp"])
    run_program(["run", "small.yaml", "workloads.0.validation=./own", "--dry-run"])

    assert "/own: 6 images of 2 classes; left out: 1 webp " in capsys.readouterr().out


@pytest.mark.usefixtures("without_launches")
def test_a_run_says_what_of_a_folder_of_images_is_not_used_and_keeps_it(pictures):
    notes = Notes()
    store = run(pictures, PICTURES, notes)

    assert any(note.endswith(f"/{USED}") for note in notes.notes)
    assert [form.sentence for form in summarise(store).datasets] == [f"{pictures}/{USED}"]


@pytest.mark.usefixtures("without_launches")
def test_a_later_run_on_another_folder_keeps_what_is_known_of_the_first(pictures):
    run(pictures, PICTURES)
    write_folder(pictures / "other")
    store = run(pictures, PICTURES.replace("./mine", "./other"))

    assert set(store.get("datasets") or {}) == {str(pictures / "mine"), str(pictures / "other")}


@pytest.mark.usefixtures("without_launches")
@pytest.mark.parametrize("form", [[], ["--all"], ["--html"]], ids=["short", "all", "page"])
def test_a_report_says_what_of_a_folder_of_images_was_not_used(pictures, capsys, form):
    run(pictures, PICTURES)
    page = ["page.html"] if form == ["--html"] else []
    run_program(["report", "results", *form, *page])

    assert f"/{USED}" in (Path(*page).read_text() if page else capsys.readouterr().out)


@pytest.mark.usefixtures("without_launches")
def test_results_from_before_contents_were_kept_are_read_as_ever(pictures):
    store = run(pictures, PICTURES)
    (store.path / "datasets.json").unlink()

    assert summarise(Store.open(store.path)).datasets == []


@pytest.mark.usefixtures("without_launches")
def test_a_reason_of_a_newer_version_is_passed_over(pictures):
    store = run(pictures, PICTURES)
    found = dict(store.get("datasets") or {})
    found[str(pictures / "mine")]["left_out"].append({"reason": "too_new", "kind": "", "count": 1})
    store.put("datasets", found)

    assert [form.sentence for form in summarise(store).datasets] == [f"{pictures}/{USED}"]
