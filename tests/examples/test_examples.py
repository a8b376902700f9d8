"""Every example runs; one that no test runs fails the last tests."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from program import report, steptime

from steptime.catalog.manifest import load_manifests
from steptime.datasets.creation import find_builtin
from steptime.environments.cache import cache_folder
from steptime.study.study_file import read_study

EXAMPLES = Path(__file__).parents[2] / "examples"

QUICK = [
    "frameworks=reference",
    "launches={min: 2, max: 2}",
    "seconds_per_launch=0.05",
    "steps={warmup: 1, min: 3, max: 5}",
    "equivalence.enabled=false",
]
"""Changes with which a study takes seconds and needs no environment."""
STUDIES = {"two-frameworks": [], "strong-scaling": ["workers=1,2"], "cost-of-loading": []}
"""The overrides of each, besides."""
TRIALS = {
    "two-frameworks": {("single", "native", 1), ("allreduce", "native", 2)},
    "strong-scaling": {("single", "synthetic", 1), ("allreduce", "synthetic", 2)},
    "cost-of-loading": {("single", "synthetic", 1), ("single", "native", 1)},
}
"""Strategy, loader and workers of what is measured."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that runs a study once and returns its results; skips where the dataset was never made."""

    @cache
    def results_of(name: str) -> Path:
        path, folder = EXAMPLES / f"{name}.yaml", tmp_path_factory.mktemp(name)
        for workload in read_study(str(path)).workloads:
            if workload.dataset and find_builtin(workload.dataset, cache_folder()) is None:
                pytest.skip(f"the dataset is not there: run 'steptime data make {workload.dataset}'")
        steptime("run", str(path), *QUICK, *STUDIES[name], "-o", "results", cwd=folder)
        return folder / "results"

    return results_of


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_measures_what_it_asks_for(name, run):
    trials = report(run(name).parent, "results")["trials"]
    assert {(each["strategy"], each["loader"], each["workers"]) for each in trials} == TRIALS[name]
    assert {each["status"] for each in trials} == {"ok"}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_as_it_is_written_can_be_planned_with_nothing_skipped(name, tmp_path):
    plan = json.loads(steptime("run", str(EXAMPLES / f"{name}.yaml"), "--dry-run", "--json", cwd=tmp_path).stdout)
    assert plan["trials"]
    assert plan["skipped"] == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_asks_a_question_and_names_real_frameworks(name):
    study = read_study(str(EXAMPLES / f"{name}.yaml"))
    assert study.question.endswith("?")
    assert study.name == name
    assert set(study.frameworks) <= set(load_manifests())


def test_the_program_prices_every_configuration_that_was_measured(run):
    results = run("strong-scaling")
    command = [sys.executable, EXAMPLES / "read_results.py", results, "--epochs", "2", "--samples", "1000"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if "reference" in line]
    assert len(lines) == 2
    for trial in report(results.parent, "results")["trials"]:
        hours = 2000 / trial["throughput_samples_per_s"]["value"] / 3600
        (line,) = [line for line in lines if f"{trial['workers']} worker" in line]
        assert float(line.split()[0]) == pytest.approx(hours * trial["workers"], abs=1e-4)


def test_the_python_interface_gives_the_trials_as_a_frame(run):
    results = run("strong-scaling")
    command = [sys.executable, EXAMPLES / "python_api.py", results]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.count("reference") == 2


def test_every_example_for_a_cluster_is_named_by_a_test():
    tests = [EXAMPLES.parent / "tests" / name for name in ("examples", "launchers")]
    code = "".join(path.read_text() for folder in tests for path in folder.glob("*.py"))
    assert [path.name for path in (EXAMPLES / "cluster").iterdir() if path.stem not in code] == []


def test_every_example_is_explained_and_run_by_a_test():
    there = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    # Others are run by test_tutorial.py, test_own_modules.py, test_library_modules.py, test_callbacks.py and
    # test_ci_example.py.
    programs = {
        "python_api.py",
        "read_results.py",
        "numpy_ring",
        "slow_script.py",
        "own_module",
        "cluster",
        "callbacks",
        "ci",
    }
    assert there == {f"{name}.yaml" for name in STUDIES} | programs
    assert set(re.findall(r"^\| \[([^\]]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == there
