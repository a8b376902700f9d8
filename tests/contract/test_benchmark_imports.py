"""The programs of benchmarks, which no test runs whole, import what steptime has."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_what_there_is(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    wanted = [(node.module, each.name) for node in imports for each in node.names if node.module]
    missing = [
        f"{module}.{name}"
        for module, name in wanted
        if module.startswith("steptime")
        and not hasattr(import_module(module), name)
        and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []
