"""What holds for every study that comes with steptime; a new file is tested by being there."""

import json
from functools import cache
from pathlib import Path

import pytest
from program import steptime

from steptime.catalog.accelerators import Accelerators
from steptime.catalog.manifest import load_manifests
from steptime.expansion.expansion import expand
from steptime.runner.preparation import dataset_facts
from steptime.study.study_file import read_study, shipped_studies, study_files
from steptime.study.trial import Trial


@pytest.fixture(params=sorted(study_files()))
def name(request: pytest.FixtureRequest) -> str:
    """Each shipped study."""
    return str(request.param)


@cache
def trials(name: str) -> list[Trial]:
    study = read_study(name)
    return expand(study, load_manifests(), dataset_facts(study), Accelerators()).trials


def test_a_study_is_named_after_its_file(name):
    assert read_study(name).name == name


def test_a_study_asks_a_question(name):
    assert shipped_studies()[name].endswith("?")


def test_a_study_has_trials_on_this_machine_without_any_device(name):
    assert trials(name)


def test_a_study_has_no_trial_with_a_rival_nobody_to_compare_it_with(name):
    groups: dict[str, set[str]] = {}
    for trial in trials(name):
        groups.setdefault(trial.group, set()).add(f"{trial.framework} {trial.strategy} {trial.options}")
    assert all(len(rivals) > 1 for rivals in groups.values())


def test_a_study_ends_by_itself(name):
    study = read_study(name)
    assert study.budget is not None or study.launches.max


@pytest.mark.sampled
def test_a_study_can_be_planned_by_the_program(name, tmp_path: Path):
    plan = json.loads(steptime("run", name, "--dry-run", "--json", cwd=tmp_path).stdout)
    assert len(plan["trials"]) == len(trials(name))
    assert all(trial["commands"] for trial in plan["trials"])
    assert not list(tmp_path.iterdir())


PAPERS = {"load-imbalance": 2021, "sgd-models": 2018, "batch-and-scale": 2018}
_SMALL_MACHINE_S = 30 * 60.0


@pytest.fixture(params=PAPERS)
def of_paper(request: pytest.FixtureRequest) -> str:
    """Each study that asks the question of a paper and answers it by models or predictions."""
    return str(request.param)


def test_a_study_of_a_paper_names_it_with_year_and_address(of_paper):
    paper = read_study(of_paper).paper
    assert paper is not None
    assert (paper.year, paper.address.startswith("https://")) == (PAPERS[of_paper], True)


def test_a_study_of_a_paper_has_the_papers_own_scale(of_paper):
    assert read_study(of_paper, ["scale=paper"]).device == ["cuda"]


def test_a_study_of_a_paper_ends_within_half_an_hour_on_a_small_machine(of_paper):
    budget = read_study(of_paper).budget
    assert budget is not None
    assert budget <= _SMALL_MACHINE_S


def test_a_study_of_a_paper_asks_for_models_or_predictions_that_answer_it(of_paper):
    study = read_study(of_paper)
    assert study.performance_models or study.predictions


def test_the_load_imbalance_study_slows_every_framework_and_workload():
    measured = trials("load-imbalance")
    slow = [trial for trial in measured if min(_shares(trial)) < 1.0]
    even = [trial for trial in measured if min(_shares(trial)) == 1.0]
    assert {(each.framework, each.workload) for each in slow} == {(each.framework, each.workload) for each in even}


def _shares(trial: Trial) -> list[float]:
    assert trial.cluster is not None
    return [host.cpu_share for host in trial.cluster.hosts]
