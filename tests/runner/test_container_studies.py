"""Studies whose interpreters run in containers: what is shown before, what is started, and what is kept."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from containers import CONTAINER, missing_bubblewrap
from small_study import CHECKED_STUDY, STUDY

from steptime.analysis.summary import summarise
from steptime.cli.app import run_program
from steptime.execution.progress import Silent
from steptime.exports.export import export_tables
from steptime.report.conditions import environment_in_a_line
from steptime.results.store import Store
from steptime.runner.plan import plan_study
from steptime.runner.study_run import StudyRun

APPTAINER = "apptainer exec --nv --bind '/shared data' /shared/image.sif"
BWRAP = pytest.mark.skipif(missing_bubblewrap() is not None, reason=str(missing_bubblewrap()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, beside a cache of its own that does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    return tmp_path


def write_study(container: str, text: str = STUDY, python: str = sys.executable) -> None:
    choice = json.dumps({"container": container, "python": python})
    Path("small.yaml").write_text(text + f"environments: {{reference: {choice}}}\n")


def run(*overrides: str) -> Store:
    StudyRun(plan_study("small.yaml", list(overrides), Path("results"), None), Silent()).run()
    return Store.open(Path("results"))


@pytest.mark.parametrize("launcher", ["local", "mpi", "emulated"])
def test_a_dry_run_shows_the_whole_command_starts_nothing_and_writes_nothing(folder, capsys, monkeypatch, launcher):
    write_study(APPTAINER, python="python3")
    monkeypatch.setenv("COLUMNS", "400")
    emulated = ["cluster={hosts: 2}"] if launcher == "emulated" else []
    monkeypatch.setattr("steptime.launchers.mpiexec.shutil.which", lambda name: f"/usr/bin/{name}")
    started: list[str] = []
    real = subprocess.Popen

    def start(argv: list[str], **how: Any) -> Any:
        started.append(str(argv))
        return real(argv, **how)

    monkeypatch.setattr(subprocess, "Popen", start)

    assert run_program(["run", "small.yaml", "--dry-run", f"launcher={launcher}", *emulated]) == 0

    said = capsys.readouterr().out
    assert f"runs reference with {APPTAINER} python3, as the study has it" in said
    (line,) = [line for line in said.splitlines() if "STEPTIME_WORKERS=1" in line]
    assert f" {APPTAINER} python3 {folder}/steptime-results/small/trials/reference-" in line
    assert line.endswith("/launch-0/job.json")
    assert not [each for each in started if "apptainer" in each or "start.py" in each]
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


def test_a_dry_run_as_json_has_the_container_of_each_trial_and_names_it_among_the_programs_of_the_study(folder, capsys):
    write_study(APPTAINER, python="python3")
    assert run_program(["run", "small.yaml", "--dry-run", "--json"]) == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["foreign_programs"] == [f"reference with {APPTAINER} python3, as the study has it"]
    (trial,) = plan["trials"]
    assert trial["container"] == ["apptainer", "exec", "--nv", "--bind", "/shared data", "/shared/image.sif"]
    assert f" {APPTAINER} python3 " in trial["commands"][0]


@pytest.mark.usefixtures("folder")
def test_a_dry_run_on_hosts_names_the_container_too(capsys, monkeypatch):
    write_study(APPTAINER, python="python3")
    monkeypatch.setenv("COLUMNS", "400")
    assert run_program(["run", "small.yaml", "--dry-run", "launcher=ssh", "hosts=n0,n1", "device=cpu"]) == 0

    assert f"runs reference with {APPTAINER} python3, as the study has it" in capsys.readouterr().out


def test_a_container_program_that_this_machine_lacks_fails_the_trial_with_the_way_to_have_it(folder, capsys):
    write_study("no-such-apptainer exec image.sif", python="python3")
    assert run_program(["run", "small.yaml", "-o", "results"]) == 3

    (trial,) = summarise(Store.open(folder / "results")).trials
    assert trial.status == "failed"
    assert trial.reason.startswith("environments.reference.container: no program 'no-such-apptainer'")
    capsys.readouterr()


@pytest.mark.costly
@BWRAP
@pytest.mark.usefixtures("folder")
def test_a_study_is_checked_and_measured_in_a_container_and_keeps_which_it_was(tmp_path):
    words = " ".join(CONTAINER)
    write_study(words, CHECKED_STUDY.replace("workers: [1]", "workers: [2]"))
    store = run()

    summary = summarise(store)
    (trial,) = summary.trials
    assert (trial.status, trial.launches, trial.container) == ("ok", 2, words)
    assert [check.passed for check in summary.equivalence] == [True]
    assert environment_in_a_line(trial).endswith(f"environment reference (existing), in the container of {words}")
    launches = store.launches(trial.id)
    assert {tuple(launch.environment["container"]) for launch in launches} == {CONTAINER}
    assert {launch.environment["interpreter"] for launch in launches} == {sys.executable}
    commands: list[list[str]] = [command for launch in launches for command in launch.commands]
    assert all(tuple(command[: len(CONTAINER) + 1]) == (*CONTAINER, sys.executable) for command in commands)
    tables = export_tables(store, tmp_path, "csv")
    assert words in tables[0].read_text()


@BWRAP
@pytest.mark.usefixtures("folder")
def test_a_run_with_another_container_measures_anew_and_with_the_same_goes_on():
    write_study(" ".join(CONTAINER))
    (first,) = run().trials()
    again = run()
    assert [len(again.launches(trial.id)) for trial in again.trials()] == [2]

    other: list[Any] = [*CONTAINER[:-1], "--die-with-parent", "--"]
    changed = run(f"environments.reference.container={' '.join(other)}")
    assert {trial.container for trial in changed.trials()} == {CONTAINER, tuple(other)}
    assert [len(changed.launches(trial.id)) for trial in changed.trials()] == [2, 2]
    assert first.id in {trial.id for trial in changed.trials()}
