"""What a launcher misses here is found once, before anything is launched, for exactly the trials that need it."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_study import CHECKED_STUDY

from steptime.catalog.found_site import FoundHost
from steptime.cli.app import run_program
from steptime.execution.progress import Silent
from steptime.results.store import Store
from steptime.runner.plan import StudyPlan, plan_study
from steptime.runner.preparation import ready_interpreter
from steptime.runner.study_run import StudyRun

STUDY = CHECKED_STUDY + "launcher: mpi\ndevice: cpu\n"


class Told(Silent):
    """An observer that keeps what the user is told, and what is worked on."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.items: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def working_on(self, what: str) -> None:
        self.items.append(what)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and holds no mpiexec."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def mpiexec_in(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mpiexec").write_text("#!/bin/sh\n")
    (folder / "mpiexec").chmod(0o700)
    return folder


def planned(folder: Path, text: str) -> StudyPlan:
    (folder / "small.yaml").write_text(text)
    return plan_study(str(folder / "small.yaml"), [], folder / "results", None)


def missing(plan: StudyPlan) -> dict[str, str | None]:
    return {trial.framework: plan.missing_requirement(trial) for trial in plan.expansion.trials}


def with_own_interpreter(folder: Path) -> str:
    """Return the study with a framework in an interpreter of the user's own, which lies in ``folder/own``."""
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "python").symlink_to(sys.executable)
    chosen = f"environments: {{pytorch: {{kind: existing, python: {folder}/own/python}}}}\n"
    return STUDY.replace("[reference]", "[reference, pytorch]") + chosen


def test_a_plan_says_what_is_missing_and_what_would_help(tmp_path):
    (reason,) = missing(planned(tmp_path, STUDY)).values()
    assert f"no mpiexec beside {sys.executable} or on PATH; install Debian's package mpich" in reason
    assert "launcher=auto" in reason


def test_only_frameworks_without_an_mpiexec_of_their_own_miss_one(tmp_path):
    mpiexec_in(tmp_path / "own")
    found = missing(planned(tmp_path, with_own_interpreter(tmp_path)))
    assert {framework: reason is None for framework, reason in found.items()} == {"reference": False, "pytorch": True}


def test_an_mpiexec_on_path_suffices_for_all(tmp_path, nowhere):
    plan = planned(tmp_path, with_own_interpreter(tmp_path))
    mpiexec_in(nowhere)
    assert missing(plan) == {"reference": None, "pytorch": None}


def test_a_launcher_that_needs_no_mpiexec_misses_none(tmp_path):
    assert missing(planned(tmp_path, STUDY.replace("launcher: mpi", "launcher: local"))) == {"reference": None}


def test_of_an_environment_that_is_not_made_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    plan = planned(tmp_path, STUDY.replace("[reference]", "[pytorch]"))
    assert missing(plan) == {"pytorch": None}
    assert "known when its environment is made: no mpiexec" in plan.commands(plan.expansion.trials[0])[0]


def test_a_dry_run_says_once_what_cannot_be_started(tmp_path, capsys):
    planned(tmp_path, STUDY.replace("workers: [1]", "workers: [1, 2]"))
    assert run_program(["run", str(tmp_path / "small.yaml"), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("cannot be started: reference (2): no mpiexec") == 1


def test_a_dry_run_shows_the_commands_of_a_trial_that_can_be_started(tmp_path, capsys):
    mpiexec_in(tmp_path / "own")
    text = with_own_interpreter(tmp_path).replace("[reference, pytorch]", "[pytorch, reference]")
    planned(tmp_path, text)
    run_program(["run", str(tmp_path / "small.yaml"), "--dry-run"])
    assert f"{tmp_path}/own/mpiexec" in capsys.readouterr().out


def test_a_run_refuses_trials_once_before_check_and_launches(tmp_path):
    plan, observer = planned(tmp_path, STUDY.replace("workers: [1]", "workers: [1, 2]")), Told()
    counts = StudyRun(plan, observer).run()

    (note,) = observer.notes
    assert note.startswith("cannot be started: reference (2): no mpiexec beside")
    assert observer.items == []
    assert counts.failed == 2
    assert not list(plan.folder.glob("trials/*/launch-*"))


def test_a_run_starts_not_even_the_interpreter_of_a_refused_trial(tmp_path):
    own, proof = tmp_path / "own", tmp_path / "proof"
    own.mkdir()
    (own / "python").write_text(f"#!/bin/sh\n: >{proof}\n")
    (own / "python").chmod(0o700)
    chosen = f"environments: {{pytorch: {{kind: existing, python: {own}/python}}}}\n"
    StudyRun(planned(tmp_path, STUDY.replace("[reference]", "[pytorch]") + chosen), Silent()).run()

    assert not proof.exists()


def test_what_emulated_hosts_need_is_said_before_anything_is_launched(tmp_path):
    (reason,) = missing(
        planned(tmp_path, STUDY.replace("launcher: mpi", "launcher: emulated\ncluster: {hosts: 2}"))
    ).values()
    assert "needs the command 'ip'" in reason


def test_a_refused_trial_has_the_reason_in_the_report(tmp_path):
    plan = planned(tmp_path, STUDY)
    StudyRun(plan, Silent()).run()
    (verdict,) = Store.open(plan.folder).get("verdicts").values()
    assert verdict["status"] == "failed"
    assert verdict["reason"].startswith("no mpiexec beside")


@pytest.mark.costly
def test_an_environment_without_mpiexec_is_told_as_soon_as_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path / "cache"))
    plan = planned(tmp_path, STUDY + "environments: {reference: {kind: venv}}\n")
    own = tmp_path / "reference"
    shutil.copytree(plan.manifests["reference"].folder, own)
    (own / "requirements.txt").write_text("--no-index\n")
    (own / "requirements.lock").unlink()
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    manifest = plan.manifests["reference"].model_copy(update={"folder": own, "python": [here], "verify": ""})
    plan = replace(plan, manifests={**plan.manifests, "reference": manifest})
    assert missing(plan) == {"reference": None}

    observer = Told()
    counts = StudyRun(plan, observer).run()

    assert "cannot be started: reference (1): no mpiexec" in "\n".join(observer.notes)
    assert {item.partition(":")[0] for item in observer.items} == {"environment reference"}
    assert counts.failed == 1


def test_frameworks_that_bring_an_mpiexec_run_beside_those_that_are_refused(tmp_path):
    if ready_interpreter("chainer") is None:
        pytest.skip("no environment of chainer, which brings an mpiexec: run 'steptime env create chainer'")
    text = STUDY.replace("[reference]", "[reference, chainer]").replace("workers: [1]", "workers: [2]")
    plan = planned(tmp_path, text + "strategies: allreduce\nequivalence: {enabled: false}\n")
    counts = StudyRun(plan, Silent()).run()

    assert (counts.ok, counts.failed) == (1, 1)
    launched = {path.parts[-2].partition("-")[0] for path in plan.folder.glob("trials/*/launch-0")}
    assert launched == {"chainer"}


HOSTS = STUDY.replace("workers: [1]", "workers: [2]") + "hosts: [n0, n1]\n"


@pytest.mark.parametrize(("there", "words"), [("/usr/bin/mpiexec", None), (None, "or on PATH of n0; install")])
def test_over_hosts_the_mpiexec_is_that_of_the_first_host(tmp_path, there, words):
    plan = planned(tmp_path, HOSTS)
    assert plan.site
    hosts = (FoundHost("n0", boot="a", mpiexec=there), FoundHost("n1", boot="b"))
    reason = plan.missing_requirement(plan.expansion.trials[0], replace(plan.site, hosts=hosts))
    assert reason is None if words is None else words in reason


def test_before_hosts_are_probed_nothing_is_known_of_their_mpiexec(tmp_path):
    assert missing(planned(tmp_path, HOSTS)) == {"reference": None}
