"""A study that names a user's own module: what is read of its files, what is said of them, and what is refused."""

from pathlib import Path

import pytest
from program import steptime

from steptime.catalog.workloads.own_module import find_own_module, other_kind
from steptime.errors import StudyError, WorkloadError
from steptime.runner.plan import plan_study
from steptime.study.study_file import read_study

MODULE = """\
import torch
from helpers import width

open("imported", "w").close()  # beside the study, if anything imports this

def build():
    return torch.nn.Linear(width(), 2)

def loader(rank, size, batch):
    while True:
        yield torch.zeros(batch, 3), torch.zeros(batch, dtype=torch.int64)
"""
STUDY = """\
workloads: {name: mine, module: mine:build, data: mine:loader}
frameworks: [pytorch, tensorflow]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "helpers.py").write_text("def width():\n    return 3\n")
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def test_a_dry_run_names_the_files_that_a_run_imports_and_imports_none(folder):
    said = steptime("run", "study.yaml", "--dry-run", cwd=folder, COLUMNS="1000").stdout
    assert f"runs mine: imports {folder / 'mine.py'}, with {folder / 'helpers.py'}" in said
    assert not (folder / "imported").exists()


def test_a_framework_of_another_kind_of_module_is_skipped_with_the_import_that_shows_it(folder):
    said = steptime("run", "study.yaml", "--dry-run", cwd=folder, COLUMNS="1000").stdout
    assert f"tensorflow (1): cannot train mine: {folder / 'mine.py'} imports torch" in said
    assert "TensorFlow trains a keras.Model" in said


def test_a_framework_without_modules_of_users_is_skipped_with_the_reason(folder):
    (folder / "study.yaml").write_text(STUDY.replace("tensorflow", "chainer"))
    said = steptime("run", "study.yaml", "--dry-run", cwd=folder, COLUMNS="1000").stdout
    assert "chainer (1): cannot train mine: Chainer takes no module of your own" in said


def test_a_strategy_without_modules_of_users_is_skipped_with_the_reason(folder):
    (folder / "mine.py").write_text(MODULE.replace("import torch", "import keras"))
    (folder / "study.yaml").write_text(STUDY.replace("pytorch, ", "") + "strategies: [single, ps_async]\nworkers: 1\n")
    said = steptime("run", "study.yaml", "--dry-run", cwd=folder, COLUMNS="1000").stdout
    assert "'ps_async' cannot train mine: the coordinator schedules" in said


@pytest.mark.parametrize("imports", ["import numpy", "import jax, torch"])
def test_imports_of_no_kind_or_of_two_show_nothing(folder, imports):
    (folder / "mine.py").write_text(MODULE.replace("import torch", imports))
    assert other_kind(find_own_module(folder, "mine:build", "mine:loader"), "keras") is None


def test_paths_begin_at_the_folder_of_the_study(folder, monkeypatch):
    (folder / "inside").mkdir()
    (folder / "inside" / "mine.py").write_text("def build(): ...\ndef loader(rank, size, batch): ...\n")
    (folder / "study.yaml").write_text(STUDY.replace("module: mine:build", "module: ./inside/mine:build"))
    monkeypatch.chdir("/")
    (choice,) = read_study(folder / "study.yaml").workloads
    assert choice.module == f"{folder}/inside/mine:build"


def trial_ids(folder: Path) -> list[str]:
    return [trial.id for trial in plan_study(str(folder / "study.yaml"), [], None, None).expansion.trials]


def test_a_changed_file_that_the_module_imports_makes_another_trial(folder):
    before = trial_ids(folder)
    (folder / "helpers.py").write_text("def width():\n    return 4\n")
    assert trial_ids(folder) != before


def test_the_same_files_in_another_folder_are_the_same_trial(folder):
    before = trial_ids(folder)
    other = folder / "elsewhere"
    other.mkdir()
    for name in ("mine.py", "helpers.py", "study.yaml"):
        (folder / name).rename(other / name)
    assert trial_ids(other) == before


def test_a_trial_of_a_built_in_workload_has_no_key_for_modules(folder):
    (folder / "study.yaml").write_text("workloads: lenet5\nframeworks: pytorch\n")
    plan = plan_study(str(folder / "study.yaml"), [], None, None)
    assert "own" not in plan.expansion.trials[0].model_dump(mode="json")
    assert "module" not in plan.study.model_dump(mode="json")["workloads"][0]


def test_files_of_a_package_are_found_with_its_relative_imports(folder):
    package = folder / "package"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "part": "from . import other\ndef f(): ...\n",
        "other": "import helpers\n",
    }.items():
        (package / f"{name}.py").write_text(text)
    found = find_own_module(folder, "package.part:f", "package.part:f")
    names = [name for name, _ in found.files]
    assert names[0] == "package/part.py"
    assert sorted(names[1:]) == ["helpers.py", "package/__init__.py", "package/other.py"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine", "is not MODULE:FUNCTION"),
        ("nowhere:build", "is missing; paths start at the folder of the study"),
        ("mine:bild", "did you mean 'build'?"),
        ("broken:build", "broken.py, line 1: not Python"),
        ("steptime.mine:build", "cannot be named steptime"),
    ],
)
def test_a_function_that_cannot_be_found_is_named(folder, name, said):
    (folder / "broken.py").write_text("def build(:\n")
    with pytest.raises(WorkloadError, match=said.replace("?", "\\?")):
        find_own_module(folder, name, "mine:loader")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("{name: lenet5, module: mine:build, data: mine:loader}", "is a workload of steptime; name yours otherwise"),
        ("{name: mine, module: mine:build}", "needs data"),
        ("{name: lenet5, data: mine:loader}", "belongs to a module of your own"),
        ("{name: mine, module: mine:build, data: mine:loader, image: 32}", "means nothing to a module of your own"),
        ("{name: mine, module: mine:missing, data: mine:loader}", "unknown function 'missing'"),
        ("{name: a/b, module: mine:build, data: mine:loader}", "is not a name"),
    ],
)
def test_keys_that_contradict_each_other_are_named_with_their_line(folder, workload, said):
    (folder / "study.yaml").write_text(f"frameworks: pytorch\nworkloads: {workload}\n")
    with pytest.raises(StudyError) as refused:
        read_study(folder / "study.yaml")
    assert said in str(refused.value)
    assert "study.yaml:2:" in str(refused.value)


@pytest.mark.parametrize("framework", ["pytorch", "jax", "tensorflow"])
def test_workloads_new_writes_a_study_that_can_be_planned(framework, tmp_path):
    said = steptime("workloads", "new", "mine", "--framework", framework, cwd=tmp_path).stdout
    assert "next: steptime run mine.yaml" in said
    said = steptime("run", "mine.yaml", "--dry-run", cwd=tmp_path, COLUMNS="1000").stdout
    assert f"imports {tmp_path / 'mine.py'}" in said
    assert framework in said


def test_workloads_new_names_the_frameworks_that_train_modules_of_users(tmp_path):
    said = steptime("workloads", "new", "mine", "--framework", "chainer", cwd=tmp_path, check=2).stderr
    assert "tensorflow" in said
    assert not list(tmp_path.iterdir())


def test_workloads_new_overwrites_nothing(tmp_path):
    (tmp_path / "mine.py").write_text("mine\n")
    said = steptime("workloads", "new", "mine", cwd=tmp_path, check=2).stderr
    assert "mine.py exists already" in said
    assert (tmp_path / "mine.py").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["random", "torch", "jax", "numpy", "transformers"])
def test_a_new_module_hides_no_library_from_scripts_beside_it(name, tmp_path):
    said = steptime("workloads", "new", name, cwd=tmp_path, check=2).stderr
    assert f"{name}.py would hide the library" in said
    assert not list(tmp_path.iterdir())
