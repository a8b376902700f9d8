"""docs/extending.md lists the files of a framework as the example package has them."""

import re
from pathlib import Path

import pytest

from steptime.runner.extending.template import template_files, write_framework

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
EXAMPLE = ROOT / "examples" / "numpy_ring"


def listed() -> dict[str, str]:
    """Return the files of the page's table, each with what it says about whether the file is needed."""
    table = PAGE.split("| file in the framework's folder |")[1].split("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[2:]]
    return {name: row[2].strip() for row in rows for name in re.findall(r"`([\w.]+)`", row[1])}


def test_the_page_lists_every_file_of_the_example_framework_and_no_other():
    folder = EXAMPLE / "numpy_ring" / "framework"
    assert set(listed()) == {path.name for path in folder.iterdir() if path.is_file()}


def test_every_framework_has_the_files_that_the_page_calls_needed():
    needed = {name for name, when in listed().items() if when == "yes"}
    folders = [path.parent for path in (ROOT / "src" / "steptime" / "frameworks").glob("*/framework.toml")]
    assert len(needed) == 6
    assert [(folder.name, name) for folder in folders for name in needed if not (folder / name).exists()] == []


def test_the_readme_of_the_example_lists_its_files():
    text = (EXAMPLE / "README.md").read_text()
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    files = {str(path) for path in template_files()} - {"README.md"}
    assert {name for name in files if not name.endswith("__init__.py")} == rows


def test_every_file_that_the_page_names_is_there():
    named = re.findall(r"`((?:src|tests|examples)/[a-z\d_/.]+)`", PAGE)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("name", ["tinygrad", "torch", "my_trainer"])
def test_the_package_of_a_framework_hides_no_package_of_its_name(tmp_path, name):
    written = [path.relative_to(tmp_path) for path in write_framework(name, tmp_path / "new")]
    assert {path.parts[1] for path in written if len(path.parts) > 2} == {f"steptime_{name}"}
    project = (tmp_path / "new" / "pyproject.toml").read_text()
    assert f'name = "steptime-{name.replace("_", "-")}"' in project
    assert f'{name} = "steptime_{name}.framework"' in project
    assert not [path for path in written if "numpy_ring" in (tmp_path / path).read_text()]
