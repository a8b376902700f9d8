"""What other distributions bring by entry points: found by its name, and where it is broken, said with its cause."""

import json
import sys
from pathlib import Path

import pytest
from program import process, steptime

from steptime.catalog import manifest
from steptime.catalog.manifest import broken_frameworks, load_manifests, manifest_named
from steptime.catalog.plugins import plugins_of
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.cli.app import run_program
from steptime.datasets.builtins import BUILTINS
from steptime.errors import PluginError, StudyError, UsageError
from steptime.launchers.table import LAUNCHERS, launcher_named
from steptime.runner import doctor
from steptime.study.study_file import broken_studies, read_study, study_files, study_providers

MANIFEST = 'title = "T"\ndistribution = "t"\npython = ["3.11"]\n[strategies.single]\nmax_workers = 1\n'
WORKLOAD = """
from steptime.catalog.workloads.layers import Network
from steptime.catalog.workloads.table import Entry


def build(input_shape, classes):
    net = Network(input_shape)
    net.linear("fc", net.input, classes)
    return net.finish("tiny", classes=classes)


ENTRY = Entry("tiny", "a line", "nobody 2020", (4,), 2, 10, build)
OTHER = Entry("another", "a line", "nobody 2020", (4,), 2, 10, build)
NOTHING = 7
"""
LAUNCHER = """
from steptime.launchers.table import LocalLauncher


class There(LocalLauncher):
    name = "there"
    summary = "as local"
"""
DATASET = """
from pathlib import Path
from steptime.datasets.builtins import Builtin

DOTS = Builtin("dots", "3 dots", "drawn", "CC0", "arrays", 3, ("a", "b"), (1, 2, 2), Path(__file__))
"""
STUDY = """\
version: 1
question: Is it there?
frameworks: [reference]
workloads: [{name: lenet5, batch_per_worker: 8}]
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A function that installs a distribution: files by path, and entry points by group."""
    caches = [plugins_of, manifest._of_plugins, load_manifests]

    def install(name: str, files: dict[str, str], **groups: dict[str, str]) -> Path:
        site = tmp_path / name
        for path, text in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        about = site / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[steptime.{group}]", *(f"{key} = {value}" for key, value in points.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        monkeypatch.syspath_prepend(str(site))
        for each in caches:
            each.cache_clear()
        return site

    before = set(sys.modules)
    yield install
    for each in caches:
        each.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_framework_of_another_distribution_is_found_without_importing_it(installed):
    installed(
        "far",
        {"far/__init__.py": "", "far/framework.toml": MANIFEST, "far/adapter.py": "raise RuntimeError"},
        frameworks={"far": "far"},
    )
    found = load_manifests()["far"]
    assert (found.name, found.package, found.provider, found.folder.name) == ("far", "far", "far 1.0", "far")
    assert "far" not in sys.modules


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({}, "no package 'far'"),
        ({"far/__init__.py": ""}, "No such file or directory"),
        ({"far/__init__.py": "", "far/framework.toml": "title ="}, "framework.toml"),
        ({"far/__init__.py": "", "far/framework.toml": MANIFEST + "spped = 1\n"}, "spped: Extra inputs"),
    ],
    ids=["no package", "no manifest", "no TOML", "wrong key"],
)
def test_a_broken_framework_is_an_error_with_its_cause_to_whoever_names_it_and_to_nobody_else(
    installed, tmp_path, files, cause
):
    installed("far", files, frameworks={"far": "far"})
    assert "reference" in load_manifests()
    assert cause in broken_frameworks()["far"]
    with pytest.raises(PluginError, match=cause):
        manifest_named("far")
    (tmp_path / "study.yaml").write_text(STUDY.replace("reference", "far"))
    with pytest.raises(StudyError, match=cause):
        read_study(tmp_path / "study.yaml")


def test_an_unknown_framework_is_answered_with_the_choices():
    with pytest.raises(UsageError, match=r"unknown framework 'pytorhc'; did you mean 'pytorch'"):
        manifest_named("pytorhc")


def test_a_workload_is_built_by_its_name(installed):
    installed("far", {"tiny_workload.py": WORKLOAD}, workloads={"tiny": "tiny_workload:ENTRY"})
    assert build_workload("tiny").parameter_count == 10
    assert LIBRARY.provider("tiny") == "far 1.0"


def test_a_launcher_is_made_by_its_name(installed):
    installed("far", {"far_launcher.py": LAUNCHER}, launchers={"there": "far_launcher:There"})
    assert launcher_named("there").summary == "as local"


def test_a_dataset_says_its_maker(installed):
    site = installed("far", {"far_dots.py": DATASET}, datasets={"dots": "far_dots:DOTS"})
    assert BUILTINS["dots"].maker == site / "far_dots.py"


def test_a_study_is_found_by_the_name_of_its_file(installed):
    installed("far", {"asked/__init__.py": "", "asked/is-it.yaml": STUDY}, studies={"asked": "asked"})
    assert study_providers()["is-it"] == "far 1.0"
    assert read_study("is-it").question == "Is it there?"


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("tiny_workload:NOTHING", "it is 7, where a steptime.catalog.workloads.table.Entry is expected"),
        ("tiny_workload:OTHER", "its own name is 'another'"),
        ("tiny_workload:MISSING", "has no attribute 'MISSING'"),
        ("no_such_module:ENTRY", "No module named 'no_such_module'"),
    ],
)
def test_a_broken_workload_is_an_error_with_its_cause_to_whoever_names_it_and_to_nobody_else(installed, value, cause):
    installed("far", {"tiny_workload.py": WORKLOAD}, workloads={"tiny": value})
    assert build_workload("lenet5").parameter_count == 61_706
    with pytest.raises(PluginError, match=r"the workload 'tiny' of far 1\.0") as caught:
        build_workload("tiny")
    assert cause in str(caught.value)


def test_studies_whose_package_is_missing_disturb_no_other(installed):
    installed("far", {}, studies={"asked": "asked"})
    assert "no package 'asked'" in broken_studies()["asked"]
    assert "quickstart" in study_files()


def test_a_name_that_two_distributions_give_is_an_error_that_names_both(installed):
    installed("far", {}, workloads={"tiny": "tiny_workload:ENTRY"})
    installed("near", {}, workloads={"tiny": "near_workload:ENTRY"})
    with pytest.raises(PluginError, match=r"the workload 'tiny' is given twice: by far 1\.0 and by near 1\.0"):
        list(LIBRARY)


@pytest.mark.parametrize(
    ("group", "name", "look"),
    [
        ("frameworks", "pytorch", load_manifests),
        ("workloads", "lenet5", lambda: list(LIBRARY)),
        ("launchers", "mpi", lambda: list(LAUNCHERS)),
        ("datasets", "photos", lambda: list(BUILTINS)),
    ],
)
def test_a_name_of_steptimes_own_cannot_be_taken(installed, group, name, look):
    installed("far", {}, **{group: {name: "anything"}})
    with pytest.raises(PluginError, match=rf"'{name}' is given twice: by steptime and by far 1\.0"):
        look()


def test_a_study_of_steptimes_own_name_cannot_be_taken(installed):
    installed("far", {"asked/__init__.py": "", "asked/quickstart.yaml": STUDY}, studies={"asked": "asked"})
    with pytest.raises(PluginError, match=r"the study 'quickstart' is given twice: by steptime and by far 1\.0"):
        study_files()


@pytest.mark.parametrize(
    ("what", "column", "cause"),
    [
        ("frameworks", "state", "no package"),
        ("workloads", "title", "No module named"),
        ("launchers", "summary", "No module named"),
        ("datasets", "title", "No module named"),
        ("studies", "question", "no package"),
    ],
)
def test_a_list_names_a_broken_plugin_once_with_its_distribution_and_cause(installed, tmp_path, what, column, cause):
    site = installed("far", {}, **{what: {"broken": "no_such_module"}})
    printed = steptime("list", what, "--json", cwd=tmp_path, PYTHONPATH=str(site)).stdout
    (row,) = [row for row in json.loads(printed) if row["name"] == "broken"]
    assert row["provider"] == "far 1.0"
    assert cause in row[column]


@pytest.mark.parametrize("what", ["frameworks", "workloads", "launchers", "datasets", "studies"])
def test_doctor_names_a_broken_plugin_with_its_cause(installed, what):
    installed("far", {}, **{what: {"unusable": "no_such_module"}})
    (finding,) = doctor.broken_plugins()

    assert (finding.name, finding.status) == ("unusable", "missing")
    assert "no_such_module" in finding.detail


def test_an_environment_of_a_broken_framework_is_refused_with_the_cause(installed, capsys):
    installed("far", {}, frameworks={"unusable": "no_such_module"})

    assert run_program(["env", "create", "unusable"]) == 2
    assert "no package 'no_such_module'" in capsys.readouterr().err


def test_a_list_shows_where_each_comes_from_as_soon_as_one_comes_from_elsewhere(installed, tmp_path):
    site = installed("far", {"tiny_workload.py": WORKLOAD}, workloads={"tiny": "tiny_workload:ENTRY"})
    assert "from" not in process("list", "workloads", cwd=tmp_path).stdout.splitlines()[1].split()
    printed = steptime("list", "workloads", cwd=tmp_path, PYTHONPATH=str(site), COLUMNS="120").stdout
    assert "from" in printed.splitlines()[1].split()
    assert "far 1.0" in printed
    assert "steptime" in printed
