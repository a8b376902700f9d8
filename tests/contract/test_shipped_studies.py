"""What holds for every study that comes with steptime; a new file is tested by being there."""

import json
from pathlib import Path

import pytest
from program import steptime

from steptime.frameworks.manifest import load_manifests
from steptime.measurements.accelerators import Accelerator, Accelerators
from steptime.runner.expansion import expand
from steptime.runner.preparation import dataset_facts
from steptime.runner.vocabulary import read
from steptime.study.study_file import shipped_studies, study_files
from steptime.study.trial import Trial


@pytest.fixture(params=sorted(study_files()))
def name(request: pytest.FixtureRequest) -> str:
    """Each shipped study."""
    return str(request.param)


def trials(name: str, cuda_devices: int = 0) -> list[Trial]:
    study = read(name, [])
    return expand(
        study,
        load_manifests(),
        dataset_facts(study),
        Accelerators((Accelerator("H100", "GPU-1", (9, 0)),) * cuda_devices, "580.65.06"),
    ).trials


def test_a_study_is_named_after_its_file(name):
    assert read(name, []).name == name


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
    study = read(name, [])
    assert study.budget is not None or study.launches.max


def test_a_study_can_be_planned_by_the_program(name, tmp_path: Path):
    plan = json.loads(steptime("run", name, "--dry-run", "--json", cwd=tmp_path).stdout)
    assert len(plan["trials"]) == len(trials(name))
    assert all(trial["commands"] for trial in plan["trials"])
    assert not list(tmp_path.iterdir())
