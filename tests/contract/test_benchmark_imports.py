"""The programs of benchmarks, which no test runs whole, import what steptime has."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def has_name(module: str, name: str) -> bool:
    """Say whether a module defines a name: by its text where it imports a framework, which is not installed here."""
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError as error:
        spec = find_spec(module)
        if str(error.name).startswith("steptime") or spec is None or spec.origin is None:
            raise
        return any(getattr(node, "name", None) == name for node in ast.parse(Path(spec.origin).read_text()).body)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_what_there_is(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    wanted = [(node.module, each.name) for node in imports for each in node.names if node.module]
    missing = [
        f"{module}.{name}"
        for module, name in wanted
        if module.startswith("steptime") and not has_name(module, name) and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []
