"""A folder whose name is no text in UTF-8: results in it are read, and whatever would write the name down says so."""

import os
import shutil
from pathlib import Path

import pytest
from program import STUDY, launches, steptime, write_study

from steptime.errors import StudyError
from steptime.runner.plan import plan_study

NAME = os.fsdecode(b"f\xff")
SMALL = ["workers=1", "launches={min: 1, max: 1}", "equivalence.enabled=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this name with a study, and results of it beside the folder."""
    made = tmp_path_factory.mktemp("odd") / NAME
    made.mkdir()
    steptime("run", write_study(made), *SMALL, "-o", str(made.parent / "results"), cwd=made)
    return made


def test_a_study_in_such_a_folder_is_run_into_another(folder):
    assert [each["status"] for each in launches(folder.parent / "results")] == ["ok"]


@pytest.mark.parametrize(
    "command",
    [["run", "small.yaml", *SMALL, "-o", "results"], ["net", "star", "--launches", "1", "-o", "results"]],
    ids=["run", "net"],
)
def test_launches_in_such_a_folder_are_refused_by_its_name(command, folder):
    said = " ".join(steptime(*command, cwd=folder, check=2).stderr.split())

    assert r"f\xff/results' is not UTF-8" in said
    assert "choose another folder with -o" in said
    assert not (folder / "results").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["status", "report", "export", "fit"])
def test_results_in_such_a_folder_are_read(verb, folder):
    copy = folder / "copied"
    if not copy.exists():
        shutil.copytree(folder.parent / "results", copy)

    steptime(verb, str(copy), cwd=folder)


def test_a_dataset_in_such_a_folder_is_refused_by_its_name(folder, monkeypatch):
    """Its path would be in the study of the results, which could not be read again."""
    (folder / "pictures").mkdir(exist_ok=True)
    text = STUDY.replace("name: lenet5\n", "name: lenet5\n    dataset: ./pictures\n")
    (folder / "pictures.yaml").write_text(text)
    monkeypatch.chdir(folder)

    with pytest.raises(StudyError, match=r"workloads.0.dataset: the path .*is not UTF-8.*rename the folder"):
        plan_study("pictures.yaml", [], None, None)


def test_a_cache_of_such_a_name_is_refused_by_it(folder):
    done = steptime("env", "create", "pytorch", cwd=folder, check=None, STEPTIME_CACHE=str(folder / "cache"))

    assert done.returncode
    assert "set STEPTIME_CACHE to another folder" in done.stderr
