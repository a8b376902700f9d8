"""The modules that a package never imports, as its README promises; other promises are contracts of import-linter."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import steptime

PACKAGE = Path(steptime.__file__).parent
STARTING = {"subprocess", "multiprocessing", "socket", "signal", "pty"}
FETCHING = {"urllib", "http", "ftplib", "requests", "socket"}
PROMISES = {
    "study": STARTING | FETCHING | {"psutil", "pynvml", "platform", "steptime.frameworks", "steptime.runner"},
    "clusters": STARTING | FETCHING | {"psutil", "pynvml", "platform", "os"},
    "expansion": STARTING | FETCHING,
    "fitting": STARTING | FETCHING,
    "imported": STARTING | FETCHING,
    "scaling": STARTING | FETCHING,
    "datasets": FETCHING | {"steptime.environments"},
    "environments": {"steptime.frameworks", "steptime.libraries"},
    "launchers": {"steptime.frameworks", "steptime.results", "steptime.runner"},
    "runner": {"steptime.document", "steptime.report", "numpy.linalg"},
    "cli": {"numpy", "scipy", "polars", "arch", "psutil", "statistics", "math"},
}
"""The modules that no file of a package may import, with all below them."""


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_every_package_has_a_page():
    folders = {path.parent for path in PACKAGE.glob("*/__init__.py")} - {PACKAGE / "studies"}
    assert [folder.name for folder in sorted(folders) if not (folder / "README.md").exists()] == []


@pytest.mark.parametrize("package", PROMISES)
def test_a_package_imports_nothing_that_its_readme_rules_out(package):
    found = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in (PACKAGE / package).rglob("*.py")
        if "makers" not in path.parts  # programs that run in an environment of their own
        for module in imported(path)
        if any(module == name or module.startswith(f"{name}.") for name in PROMISES[package])
    ]
    assert found == []


def test_launchers_never_read_records():
    """But for the one that says which process a hung launch waited for: how far each came stands nowhere else."""
    readers = [path.name for path in (PACKAGE / "launchers").rglob("*.py") if ".jsonl" in path.read_text()]
    assert readers == ["hang.py"]


def test_only_the_command_line_prints():
    printing = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for package in (
            "runner",
            "equivalence",
            "execution",
            "expansion",
            "study",
            "clusters",
            "datasets",
            "environments",
        )
        for path in (PACKAGE / package).rglob("*.py")
        if "makers" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []
