"""Reports and the verbs that print them choose units and digits; numbers come from the measurements."""

import ast
from pathlib import Path

import pytest

import steptime

PACKAGE = Path(steptime.__file__).parent
FILES = [
    *(path for name in ("report", "document") for path in sorted((PACKAGE / name).rglob("*.py"))),
    *(PACKAGE / "cli" / f"{verb}.py" for verb in ("report", "status", "streams")),
]
ARITHMETIC = {"numpy", "scipy", "statistics", "polars"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_that_shows_results_imports_what_computes_them(path):
    """Statistics need a library of numbers, and none is imported here."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert not imported & ARITHMETIC
