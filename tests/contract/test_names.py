"""Names in the source: no class twice, files that are nouns, and the words of the field."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import steptime

SOURCE = Path(steptime.__file__).parent
ROOT = SOURCE.parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
PER_FRAMEWORK = {"libraries", "frameworks"}
"""Packages whose folders each implement the same interfaces under the same names; they are compared with the others."""


def package_of(path: Path) -> str:
    """The package of a source file: that of a framework or library is one with all others of its kind."""
    inside = path.relative_to(SOURCE).parts
    return inside[0] if len(inside) > 1 else "steptime"


def test_no_class_name_stands_in_two_packages():
    """A name stands for one thing; private and nested classes count."""
    packages = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                packages[node.name.lstrip("_")].add(package_of(path))

    assert {name: sorted(found) for name, found in packages.items() if len(found) > 1} == {}
