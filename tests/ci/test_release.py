"""What a version consists of: its archive builds the wheel, which runs; the workflow publishes what was tried."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import ruamel.yaml

from steptime import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"steptime-{__version__}"


def loaded(path: str) -> dict:
    return ruamel.yaml.YAML(typ="safe").load(ROOT / path)


JOBS = loaded(".github/workflows/release.yml")["jobs"]
SHELL = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]


def build(kind: str, tree: Path, into: Path) -> Path:
    """Build a ``kind`` of distribution of ``tree`` as pip does, with what is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return build("sdist", ROOT, tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def wheel(archive, tmp_path_factory):
    """The wheel that the archive builds."""
    tree = tmp_path_factory.mktemp("tree")
    with tarfile.open(archive) as opened:
        opened.extractall(tree, filter="data")
    return build("wheel", tree / NAME, tmp_path_factory.mktemp("wheel"))


def test_the_archive_has_every_file_of_the_repository(archive):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tarfile.open(archive) as opened:
        names = {name.removeprefix(f"{NAME}/") for name in opened.getnames()}
    assert {name for name in listed.split("\0") if name and (ROOT / name).is_file()} - names == set()


def test_the_archive_builds_the_wheel_that_the_repository_builds(wheel, tmp_path):
    of_tree, of_archive = (set(zipfile.ZipFile(path).namelist()) for path in (build("wheel", ROOT, tmp_path), wheel))
    assert of_archive == of_tree


def test_the_wheel_is_installed_and_runs_from_there(wheel, tmp_path):
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", tmp_path, wheel]
    subprocess.run(command, check=True)
    show = "import steptime, steptime.__main__ as program; print(steptime.__file__); program.main()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", show, "--version"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [str(tmp_path / "steptime" / "__init__.py"), f"steptime {__version__}"]


@pytest.mark.parametrize("command", [line for line in SHELL if line.startswith("make ")])
def test_the_workflow_makes_what_the_makefile_offers(command):
    recipe = subprocess.run([*command.split(), "-n"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert ".ci/try_wheel.py --every dist/*.whl" in recipe
    assert "hatchling build -t sdist" in recipe


def test_the_workflow_tries_every_python_that_the_wheel_is_tried_in():
    (setup,) = [step for step in JOBS["build"]["steps"] if "setup-python" in step.get("uses", "")]
    (tried,) = re.findall(r"^VERSIONS = \((.*)\)$", (ROOT / ".ci" / "try_wheel.py").read_text(), re.MULTILINE)
    assert setup["with"]["python-version"].split() == re.findall(r'"(.*?)"', tried)


@pytest.mark.parametrize(("tag", "code"), [(f"v{__version__}", 0), ("v99.0", 2)], ids=["its own", "another"])
def test_a_tag_of_another_version_ends_the_workflow(tmp_path, tag, code):
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"{NAME}.tar.gz").touch()
    (line,) = (line for line in SHELL if "GITHUB_REF_NAME" in line)
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-e", "-c", line], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == code


def test_what_was_tried_is_what_is_published_and_by_trusted_publishing():
    assert JOBS["publish"]["needs"] == "build"
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in (ROOT / ".github/workflows/release.yml").read_text()
    used = [step["uses"].partition("@")[0] for step in JOBS["publish"]["steps"]]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


def test_the_recipe_of_conda_asks_for_what_the_wheel_asks_for():
    recipe = loaded(".ci/conda/recipe.yaml")
    named = {re.sub(r"(?=[><])", " ", each, count=1).replace("typing-", "typing_") for each in PROJECT["dependencies"]}
    assert recipe["context"]["version"] == __version__
    assert set(recipe["requirements"]["run"]) == {f"python {PROJECT['requires-python']}", *named}
    assert recipe["build"]["python"]["entry_points"] == [f"steptime = {PROJECT['scripts']['steptime']}"]
