"""A package of somebody else's adds a framework and a workload: installed, raced, checked and broken down."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import steptime

pytest.importorskip("hatchling", reason="hatchling builds the example: pip install hatchling")

EXAMPLE = Path(__file__).parents[2] / "examples" / "numpy_ring"
SOURCE = Path(steptime.__file__).parents[1]
QUICK = ["seconds_per_launch=0.1", "launches={min: 1, max: 1}", "breakdown={launches: 1, seconds: 1s}", "budget=1h"]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A fresh environment with the example installed by pip, and this installation of steptime beside it."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    interpreter = folder / "venv" / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
    # What steptime needs is found where this test finds it, behind the fresh environment's own packages.
    Path(site, "beside.pth").write_text(f"{SOURCE}\n{sysconfig.get_path('purelib')}\n")
    return interpreter


@pytest.fixture(scope="module")
def installed(python, tmp_path_factory) -> Path:
    """The fresh environment with the example in it."""
    install(python, EXAMPLE)
    return python


def install(python: Path, package: Path) -> None:
    """Build a copy of ``package`` and install it, without an index."""
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", package], check=True, capture_output=True)


def run(python: Path, *arguments: object, cwd: Path, check: int | None = 0) -> str:
    """Run the installed program as a user does, and return what it prints; with ``check`` None whatever its end."""
    environment = {**os.environ, "COLUMNS": "120", "STEPTIME_CACHE": str(cwd / "cache")}
    command = [python, "-m", "steptime", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert check in (None, done.returncode), f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def raced(installed, tmp_path_factory) -> dict:
    """The JSON report of the example's own study."""
    folder = tmp_path_factory.mktemp("race")
    return json.loads(run(installed, "run", EXAMPLE / "race.yaml", *QUICK, "-o", "results", "--json", cwd=folder))


def test_its_framework_and_workload_are_listed_with_the_distribution_that_brings_them(installed, tmp_path):
    for what, name, own in (("frameworks", "numpy_ring", "reference"), ("workloads", "tiny_mlp", "lenet5")):
        rows = {row["name"]: row for row in json.loads(run(installed, "list", what, "--json", cwd=tmp_path))}
        assert rows[name]["provider"] == "numpy-ring 0.1"
        assert rows[own]["provider"] == "steptime"


def test_it_races_against_the_reference_and_passes_the_equivalence_check(raced):
    trials = {(each["framework"], each["strategy"], each["workers"]): each for each in raced["trials"]}
    assert set(trials) == {
        (framework, strategy, workers)
        for framework in ("reference", "numpy_ring")
        for strategy, workers in (("single", 1), ("allreduce", 2))
    }
    assert {each["status"] for each in trials.values()} == {"ok"}
    passed = {(each["framework"], each["strategy"]) for each in raced["equivalence"] if each["passed"]}
    assert {("numpy_ring", "single"), ("numpy_ring", "allreduce")} <= passed


def test_its_step_is_taken_apart_in_phases_that_sum_to_the_step(raced):
    ours = [each for each in raced["trials"] if each["framework"] == "numpy_ring"]
    for each in ours:
        phases = {name: phase["value_s"] for name, phase in each["breakdown"]["phases"].items() if phase}
        assert {"forward", "backward", "update", "input_wait"} <= set(phases)
        assert sum(phases.values()) == pytest.approx(each["breakdown"]["step_s"]["value_s"], rel=1e-6)
        assert ("comm_exposed" in phases) or each["workers"] == 1


def test_predictions_follow_its_own_communication_rule(installed):
    code = "from steptime.model.policies import has_own_policy; print(has_own_policy('numpy_ring', 'allreduce'))"
    done = subprocess.run([installed, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_the_check_of_a_framework_that_computes_something_else_fails_and_says_what(python, tmp_path):
    run(python, "frameworks", "new", "wrong_trainer", cwd=tmp_path)
    adapter = tmp_path / "wrong_trainer" / "steptime_wrong_trainer" / "framework" / "adapter.py"
    text = adapter.read_text()
    assert "values -= " in text
    adapter.write_text(text.replace("values -= ", "values -= 2 * "))
    install(python, tmp_path / "wrong_trainer")
    findings = json.loads(run(python, "check", "wrong_trainer", "--json", cwd=tmp_path, check=1))
    wrong = [finding for finding in findings if not finding["ok"]]
    assert {finding["what"] for finding in wrong} == {"computes what the reference computes"}
    assert all(finding["detail"].startswith("did not pass the equivalence check") for finding in wrong)


MARKED_TOO_EARLY = """
    def ablate(self):
        from steptime.worker.imperative import ImperativeAblation

        class TooEarly(ImperativeAblation):
            def marked_gradients(self, loss, mark):
                mark("backward")
                super().marked_gradients(loss, lambda phase: None if phase == "backward" else mark(phase))

        return TooEarly(self)

    def wait(self):
"""


ONLY_IN_ITS_FIRST_PROCESS = """
    def ablate(self):
        try:
            open({mark!r}, "x").close()
        except FileExistsError:
            return super().ablate()
        return self._ablate_too_early()

    def _ablate_too_early(self):
"""


@pytest.fixture(scope="module")
def checked(python, tmp_path_factory) -> tuple[list, Path]:
    """What the check found of a framework that a template wrote, and the file by which its first marks were wrong."""
    folder = tmp_path_factory.mktemp("rare")
    assert "steptime check rare_trainer" in run(python, "frameworks", "new", "rare_trainer", cwd=folder)
    adapter = folder / "rare_trainer" / "steptime_rare_trainer" / "framework" / "adapter.py"
    rare = ONLY_IN_ITS_FIRST_PROCESS.format(mark=str(folder / "marked"))
    text = MARKED_TOO_EARLY.replace("\n    def ablate(self):\n", rare)
    adapter.write_text(adapter.read_text().replace("\n    def wait(self):\n", text))
    install(python, folder / "rare_trainer")
    return json.loads(run(python, "check", "rare_trainer", "--json", cwd=folder)), folder / "marked"


def test_the_check_of_a_framework_that_a_template_wrote_looks_at_every_part(checked):
    subjects = {finding["subject"] for finding in checked[0]}
    launched = {"single, 1 worker", "allreduce, 1 worker", "allreduce, 2 workers"}
    assert {"manifest", "files", "adapter", *launched} <= subjects


def test_the_check_takes_a_step_apart_again_where_one_launch_does_not_add_up(checked):
    findings, mark = checked
    assert mark.exists()
    assert [finding for finding in findings if not finding["ok"]] == []


@pytest.mark.alone  # what measured times alone show is left open on a busy machine
def test_the_check_refuses_marks_that_contradict_the_stages(python, tmp_path):
    run(python, "frameworks", "new", "early_trainer", cwd=tmp_path)
    adapter = tmp_path / "early_trainer" / "steptime_early_trainer" / "framework" / "adapter.py"
    text = adapter.read_text()
    assert "\n    def wait(self):\n" in text
    adapter.write_text(text.replace("\n    def wait(self):\n", MARKED_TOO_EARLY))
    install(python, tmp_path / "early_trainer")

    findings = json.loads(run(python, "check", "early_trainer", "--json", cwd=tmp_path, check=1))
    wrong = {finding["what"]: finding["detail"] for finding in findings if not finding["ok"]}

    assert "marks agree with the ablation" in wrong  # and, on a busy machine, phases that miss a part of the step
    assert "by the marks of marked_step" in wrong["marks agree with the ablation"]  # of which phase, noise may decide
