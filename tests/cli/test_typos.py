"""What is mistyped is answered with the choices and the nearest of them, at once, without a traceback."""

import pytest
from program import STUDY, steptime, write_study

from steptime.results.store import Store

MISTYPED = {
    "list": (("list", "framework"), "did you mean 'frameworks'"),
    "environment": (("env", "create", "pytroch"), "did you mean 'pytorch'"),
    "dataset": (("data", "make", "digit"), "did you mean 'digits'"),
    "shipped study": (("run", "quickstrat", "--dry-run"), "quickstart"),
    "override": (("run", "quickstart", "worker=2", "--dry-run"), "workers"),
    "value": (("run", "quickstart", "workloads=lenet6", "--dry-run"), "did you mean 'lenet5'"),
    "budget": (("run", "quickstart", "--budget", "8 minuets", "--dry-run"), "8 minuets"),
}


@pytest.mark.parametrize("case", MISTYPED)
def test_a_mistyped_name_is_answered_with_the_nearest(case, tmp_path):
    arguments, answer = MISTYPED[case]
    said = steptime(*arguments, cwd=tmp_path, check=2).stderr
    assert answer in said
    assert "Traceback" not in said


OPTIONS = {
    "a letter less": (("predict", "x", "--worker", "4"), "did you mean '--workers'?"),
    "a letter more": (("predict", "x", "--knees", "80"), "did you mean '--knee'?"),
    "another word": (("sweep", "--workers", "1,2", "--", "true"), "did you mean '--counts'?"),
    "a short one": (("predict", "x", "-w", "4"), "did you mean '--workers'?"),
    "a short one of two": (("report", "x", "-f", "csv"), "did you mean '--format' or '--figures'?"),
    "of a verb below a verb": (("env", "list", "--jsn"), "did you mean '--json'?"),
    "a key of a study": (("run", "quickstart", "--workers", "4"), "a change is written without dashes: workers=4"),
    "a key below a key": (("run", "quickstart", "--launches.max=3"), "without dashes: launches.max=3"),
    "a slip of a key": (("submit", "quickstart", "--worker", "4"), "the change workers=VALUE, without dashes?"),
    "the last word of a key": (("predict", "x", "--bandwidth", "3"), "without dashes: interconnect.bandwidth=3"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_unknown_option_is_answered_with_what_it_may_mean(case, tmp_path):
    arguments, answer = OPTIONS[case]
    said = steptime(*arguments, cwd=tmp_path, check=2).stderr
    assert answer in said.splitlines()[-1]


def test_an_option_that_is_like_none_gets_no_other(tmp_path):
    said = steptime("report", "x", "--colour", "red", cwd=tmp_path, check=2).stderr
    assert said.endswith("error: no such option: --colour\n")


def test_an_unknown_export_format_is_answered_with_the_choices(tmp_path):
    said = steptime("export", ".", "--to", "parket", cwd=tmp_path, check=2).stderr
    assert "did you mean 'parquet'" in said


def test_all_mistakes_are_said_at_once(tmp_path):
    text = STUDY.replace("lenet5", "lenet6").replace("[reference]", "[refrence]").replace("\nworkers:", "\nwrokers:")
    said = steptime("run", write_study(tmp_path, text), cwd=tmp_path, check=2).stderr
    assert said.startswith("3 errors:")
    assert all(f"did you mean '{name}'" in said for name in ("lenet5", "reference", "workers"))


def test_remove_without_names_does_not_remove_all(tmp_path):
    said = steptime("env", "remove", cwd=tmp_path, check=2, STEPTIME_CACHE=str(tmp_path)).stderr
    assert "which environment?" in said


CHECKED = {
    "study file": ("mine.yaml", "to check a study: steptime run mine.yaml --dry-run"),
    "file of the other ending": ("mine.yml", "to check a study: steptime run mine.yml --dry-run"),
    "module": ("net.py", "a study checks a module of yours before it is timed: steptime workloads new NAME"),
    "shipped study": ("quickstart", "to check a study: steptime run quickstart --dry-run"),
    "package that is not installed": ("mine", "-m pip install -e mine"),
}


@pytest.mark.parametrize("case", CHECKED)
def test_check_says_what_else_takes_what_is_no_framework(case, tmp_path):
    name, answer = CHECKED[case]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").touch()
    assert answer in steptime("check", name, cwd=tmp_path, check=2).stderr


def test_list_without_a_word_names_what_it_lists(tmp_path):
    assert "workloads" in steptime("list", cwd=tmp_path, check=2).stderr


def test_a_mistyped_key_is_not_hidden_by_all_others(tmp_path):
    text = STUDY.replace("\nworkers:", "\nwrokers:")
    said = steptime("run", write_study(tmp_path, text), cwd=tmp_path, check=2).stderr
    assert "did you mean 'workers'? (docs/study-keys.md has all keys)" in said
    assert "warmup" not in said


def test_a_study_that_is_no_file_is_named(tmp_path):
    said = steptime("run", "nowhere.yaml", cwd=tmp_path, check=2).stderr
    assert "nowhere.yaml" in said
    assert "Traceback" not in said


SLIPS = {
    "run": (("run", "mien.yaml"), "did you mean 'mine.yaml'?"),
    "run, other ending": (("run", "mine.yml"), "did you mean 'mine.yaml'?"),
    "run, folder": (("run", "sub/mien.yaml"), "did you mean 'sub/mine.yaml'?"),
    "run, slip in a folder": (("run", "sbu/mine.yaml"), "did you mean 'sub/mine.yaml'?"),
    "submit": (("submit", "mien.yaml"), "did you mean 'mine.yaml'?"),
    "report": (("report", "reslts"), "did you mean 'results'?"),
    "report of several": (("report", "results", "reslts"), "did you mean 'results'?"),
    "status": (("status", "reslts"), "did you mean 'results'?"),
    "advise": (("advise", "Results"), "did you mean 'results'?"),
    "compare": (("compare", "results", "result"), "did you mean 'results'?"),
    "export": (("export", "resluts"), "did you mean 'results'?"),
    "fit": (("fit", "resluts"), "did you mean 'results'?"),
    "serve": (("serve", "resluts"), "did you mean 'results'?"),
    "predict": (("predict", "profil.json"), "did you mean 'profile.json'?"),
    "predict a curve": (("predict", "--curve", "pionts.csv"), "did you mean 'points.csv'?"),
    "evidence": (("evidence", "pionts.csv"), "did you mean 'points.csv'?"),
    "import": (("import", "tarin.log", "-o", "new"), "did you mean 'train.log'?"),
    "dataset of a study": (("run", "data.yaml", "--dry-run"), "photos'?"),
    "module of a study": (("run", "module.yaml", "--dry-run"), "net.py'?"),
}


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A folder with what the slips of ``SLIPS`` are to mean."""
    folder = tmp_path_factory.mktemp("beside")
    for name in ("sub", "photos"):
        (folder / name).mkdir()
    Store.create(folder / "results", study_text="", study_json={"name": "kept", "question": ""})
    for name in ("mine.yaml", "sub/mine.yaml", "profile.json", "points.csv", "train.log", "net.py"):
        (folder / name).touch()
    (folder / "data.yaml").write_text("workloads: {name: lenet5, dataset: ./phtos}\nframeworks: reference\n")
    own = "{name: mine, module: 'nte:build', data: 'nte:data'}"
    (folder / "module.yaml").write_text(f"workloads: {own}\nframeworks: pytorch\n")
    return folder


@pytest.mark.parametrize("case", SLIPS)
def test_a_mistyped_path_is_answered_with_the_one_beside_it(case, beside):
    arguments, answer = SLIPS[case]
    said = steptime(*arguments, cwd=beside, check=2).stderr
    assert answer in said
    assert "Traceback" not in said


def test_a_name_that_is_like_no_other_is_taken_for_none(beside):
    assert "did you mean" not in steptime("run", "another.yaml", cwd=beside, check=2).stderr


def test_a_folder_of_results_folders_names_them(beside):
    assert "it holds results folders, of which one can be named: results" in (
        steptime("report", ".", cwd=beside, check=2).stderr
    )
