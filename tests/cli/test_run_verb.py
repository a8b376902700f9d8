"""The exit codes of ``steptime run``, and what it says at its end."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from program import steptime
from small_study import CHECKED_STUDY

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.cli import run as verb
from steptime.cli.app import run_program
from steptime.equivalence import distance
from steptime.runner import plan as planning
from steptime.runner import study_run
from steptime.runner.admission import TrialCounts
from steptime.runner.budget import Budget
from steptime.runner.durations import KeptDurations
from steptime.runner.study_run import StudyRun

TYPED = SimpleNamespace(obj=None)
"""The context of a verb of a program that did not note when it began."""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A study file in an empty current folder, with an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    Path("small.yaml").write_text(CHECKED_STUDY)
    return "small.yaml"


def exit_code(study: str) -> int:
    """Run the verb as ``steptime run STUDY`` does, and return its exit code."""
    try:
        verb.run(TYPED, study, None, Path("results"), None, dry_run=False, as_json=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_framework_that_does_not_pass_the_equivalence_check_ends_with_exit_code_1(study, monkeypatch, capfd):
    # Less than no distance is allowed, so that no framework is near enough to the reference.
    monkeypatch.setattr(distance.Round, "allowed_loss", lambda *_: -1.0)

    assert exit_code(study) == 1
    said = " ".join(capfd.readouterr().out.split())
    assert "equivalence check: as trained: worker 0: the first loss is" in said
    assert not list(Path("results").glob("trials/*/records.jsonl"))


def test_a_budget_begins_with_the_process_and_not_behind_its_imports(study, monkeypatch):
    began = []
    monkeypatch.setattr(
        study_run, "StudyRun", lambda *_arguments, **fields: began.append(fields["began"]) or unmeasured()
    )
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)

    assert run_program(["run", study, "-o", "results"], began=12.5) == 0
    assert began == [12.5]


def unmeasured():
    counts = TrialCounts(ok=0, failed=0, not_equivalent=0, not_run=0)
    return SimpleNamespace(run=lambda: counts, durations=KeptDurations(), not_done=[])


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        (TrialCounts(ok=2, failed=0, not_equivalent=0, not_run=0), 0),
        (TrialCounts(ok=1, failed=0, not_equivalent=1, not_run=0), 1),
        (TrialCounts(ok=1, failed=1, not_equivalent=0, not_run=0), 3),
        (TrialCounts(ok=0, failed=1, not_equivalent=1, not_run=0), 3),
        (TrialCounts(ok=1, failed=0, not_equivalent=0, not_run=1), 4),
        (TrialCounts(ok=1, failed=1, not_equivalent=0, not_run=1), 3),
    ],
)
def test_the_exit_code_says_how_the_trials_ended(study, monkeypatch, counts, code):
    monkeypatch.setattr(StudyRun, "run", lambda _self: counts)
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)

    assert exit_code(study) == code


def test_trials_that_the_budget_left_out_are_counted_with_the_command_that_goes_on(study, monkeypatch, capfd):
    monkeypatch.setattr(StudyRun, "run", lambda _self: TrialCounts(ok=1, failed=0, not_equivalent=0, not_run=3))
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)
    exit_code(study)

    assert "the budget left out 3 trials; to continue: steptime run small.yaml -o results" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("own", "needed_s", "named"),
    [(["--budget", "12s"], 200.0, "4m"), ([], 200.0, "4m"), (["--budget", "12s"], 0.0, "12s")],
)
def test_a_budget_that_was_too_short_is_not_repeated(own, needed_s, named, study, monkeypatch, capfd):  # noqa: PLR0913, PLR0917 - fixtures
    def run(self):
        self.budget = Budget(self.plan.study, self.durations, self.plan.budget_s, proposed_s=needed_s)
        return TrialCounts(ok=1, failed=0, not_equivalent=0, not_run=3)

    monkeypatch.setattr(StudyRun, "run", run)
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)
    assert run_program(["run", study, "-o", "results", *own]) == 4

    assert capfd.readouterr().err.rstrip().endswith(f"to continue: steptime run {study} -o results --budget {named}")


def planned(capfd: pytest.CaptureFixture[str], *overrides: str) -> str:
    """Return what a dry run says of the shipped study ``schedules``."""
    verb.run(TYPED, "schedules", list(overrides), Path("results"), None, dry_run=True, as_json=False)
    return " ".join(capfd.readouterr().out.split())


def test_a_plan_tells_trainings_apart(capfd):
    said = planned(capfd, "frameworks=reference")

    assert "reference single, sgd, constant, 25 epochs" in said
    assert "reference single, adam, one_cycle, 25 epochs" in said


def test_a_plan_says_that_the_time_of_trainings_is_a_guess_and_that_a_budget_ends_before(capfd):
    said = planned(capfd, "frameworks=reference", "optimizer=sgd", "budget=10m")

    assert "about 22 min 0 s of launches" in said
    assert "a guess of 1 min 6 s for each of 20 trainings, until the first has ended" in said
    assert "a run has 10 min 0 s for checks, launches and report, which ends them (budget=" in said
    assert " leaves as much again for checks); rerun to continue" in said


def test_a_plan_says_how_long_launches_on_a_gpu_search_kernels(study, monkeypatch, capfd):
    gpus = Accelerators((Accelerator("H100", "GPU-1", (9, 0), 8e10),), "580.65.06")
    monkeypatch.setattr(planning, "accelerators_of", lambda _: gpus)
    changes = ["frameworks=[pytorch, jax]", "device=cuda", "workloads={name: resnet50, batch_per_worker: 8}"]
    verb.run(TYPED, study, changes, Path("results"), None, dry_run=True, as_json=False)
    said = " ".join(capfd.readouterr().out.split())
    assert "of each launch of resnet50 in pytorch about 13.8 s in which cuDNN searches the quickest kernels" in said
    assert "resnet50 in jax" not in said


def test_a_plan_tells_trials_apart_that_differ_in_their_loaders_helpers(study, capfd):
    helped = ["workloads.0.dataset=digits", "loaders={name: native, processes: [0, 2]}"]
    verb.run(TYPED, study, helped, Path("results"), None, dry_run=True, as_json=False)
    said = capfd.readouterr().out
    assert "reference single loader_processes=0\n" in said
    assert "reference single loader_processes=2\n" in said


def test_a_variable_of_the_shell_that_changes_nothing_is_named_in_the_plan_alone(study, monkeypatch, capfd):
    monkeypatch.setattr(StudyRun, "run", lambda _self: TrialCounts(ok=2, failed=0, not_equivalent=0, not_run=0))
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    exit_code(study)
    assert "OMP_NUM_THREADS" not in capfd.readouterr().err

    verb.run(TYPED, study, None, Path("results"), None, dry_run=True, as_json=False)
    assert "OMP_NUM_THREADS" in capfd.readouterr().out


def test_a_variable_of_the_shell_that_launches_get_is_named(study, monkeypatch, capfd):
    monkeypatch.setattr(StudyRun, "run", lambda _self: TrialCounts(ok=2, failed=0, not_equivalent=0, not_run=0))
    monkeypatch.setattr(verb, "_report", lambda *_paths, **_options: 0)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    exit_code(study)
    assert "LD_LIBRARY_PATH" in capfd.readouterr().err


PLANS = {
    "tiers": ("tiers", "frameworks=pytorch", "workers=1", "include=[]", "exclude=[]"),
    "trainings": ("schedules", "frameworks=pytorch", "workers=1"),
}


@pytest.fixture(scope="module", params=PLANS)
def plan_words(request):
    return ("run", *PLANS[request.param], "--dry-run")


def letters(text: str) -> Counter[str]:
    return Counter(re.sub(r"[\s─]", "", text))


@pytest.mark.sampled
def test_a_plan_loses_no_letter_on_a_narrow_terminal_and_breaks_no_command(plan_words, tmp_path):
    wide = steptime(*plan_words, cwd=tmp_path, COLUMNS="9999").stdout
    commands = {line for line in wide.splitlines() if re.search(r"STEPTIME_(RUN|ROLE|RANK)=", line)}
    assert commands
    for width in (60, 120):
        narrow = steptime(*plan_words, cwd=tmp_path, COLUMNS=str(width)).stdout
        assert letters(narrow) == letters(wide)
        assert commands <= set(narrow.splitlines())
        assert [line for line in narrow.splitlines() if len(line) > width and line not in commands] == []


@pytest.mark.sampled
def test_every_trial_of_a_plan_is_a_row_in_each_form(plan_words, tmp_path):
    ids = {each["id"] for each in json.loads(steptime(*plan_words, "--json", cwd=tmp_path).stdout)["trials"]}
    shown = steptime(*plan_words, "--format", "csv", "--html", "plan.html", cwd=tmp_path).stdout
    markdown = steptime(*plan_words, "--format", "markdown", cwd=tmp_path).stdout.replace("\\", "")
    assert {row["value"] for row in csv.DictReader(shown.splitlines()) if row["column"] == "trial"} == ids
    assert all(f" {each} |" in markdown and each in (tmp_path / "plan.html").read_text() for each in ids)


def test_the_page_of_a_plan_is_refused_where_the_study_is_run(tmp_path):
    assert (
        "report.html in its results folder"
        in steptime("run", "quickstart", "--html", "x", cwd=tmp_path, check=2).stderr
    )
