"""Nothing that steptime reads can run code: no source has a call by which data become code."""

import re
from pathlib import Path

import pytest

import steptime

SOURCE = Path(steptime.__file__).parent
FORBIDDEN = {
    "pickle": r"(?<!allow_)pickle|allow_pickle\s*=\s*True",
    "eval": r"(?<![.\w])eval\(",
    "exec": r"(?<![.\w])exec\(",
    "marshal": r"\bmarshal\b",
    "shelve": r"\bshelve\b",
    "yaml.load": r"\byaml\.(unsafe_|full_)?load|typ=.unsafe",
    "weights_only=False": r"weights_only\s*=\s*False",
    "torch.load": r"\btorch\.(jit\.)?load\(",
    "numpy.load": r"\b(numpy|np)\.load\((?!.*allow_pickle=False\))",
}
"""By name, what may not stand in a line. numpy read pickled objects unless told not to, until its version 1.16.3; torch
does until its version 2.6, and what ``weights_only`` lets through ran code until then."""
READER = "imported/binary_dump.py"
"""The one file that reads pickles, with every class forbidden: ``tests/imported/test_binary_dump.py`` tries it."""
EXCEPTIONS = {
    "attach/imports.py": "it runs one fixed text, which sets the interpreter's mark of a Ctrl-C",
    "frameworks/mxnet/key_value_store.py": "its docstrings say what MXNet's own servers do with messages of a launch",
    "launchers/namespaces.py": "its docstring says what frameworks do with messages of a launch",
    "libraries/torch/checkpoint.py": "its docstring says what is not done",
    "runner/training_runs.py": "it names what an older steptime left, in order to refuse it",
}
"""Files that name one of them, or give it a fixed text, and why."""


@pytest.mark.parametrize("name", FORBIDDEN)
def test_no_source_makes_code_or_objects_of_data(name):
    pattern = re.compile(FORBIDDEN[name])
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in {READER, *EXCEPTIONS}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    assert found == []


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_imports_and_calls_none_of_them(name):
    code = re.compile(r"^\s*(import|from)\s+\w*pickle|pickle\.\w+\(|pickle=True|weights_only=False|torch\.load\(")

    assert [line for line in (SOURCE / name).read_text("utf-8").splitlines() if code.search(line)] == []
