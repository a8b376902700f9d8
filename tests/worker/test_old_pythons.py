"""The worker half under the Pythons that frameworks need, from 3.6 on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin import fill_standin, run_code

import steptime

SOURCE = Path(steptime.__file__).parent
WORKER = sorted((SOURCE / "worker").rglob("*.py"))
ADAPTERS = sorted(path for path in SOURCE.glob("frameworks/*/*.py") if path.name != "__init__.py")
LIBRARIES = sorted((SOURCE / "libraries").rglob("*.py"))


def needs_when_imported(path: Path) -> set[str]:
    """Return the modules that a file imports at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def without_numpy() -> Iterator[str]:
    """Yield the modules of the worker that need the standard library alone, themselves and what they import."""
    names = {module_name(path): path for path in WORKER}
    needs = {name: needs_when_imported(path) | {name.rpartition(".")[0]} for name, path in names.items()}
    foreign = {name for name, needed in needs.items() if any(each.split(".")[0] in NOT_STANDARD for each in needed)}
    while more := {name for name, needed in needs.items() if needed & foreign} - foreign:
        foreign |= more
    yield from sorted(set(names) - foreign)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


NOT_STANDARD = {
    *("numpy", "PIL", "mpi4py", "cupy"),
    *("torch", "tensorflow", "mxnet", "chainer", "caffe", "cntk", "jax", "horovod", "deepspeed"),
}


@pytest.mark.sampled
def test_every_file_that_is_staged_can_be_compiled(python):
    paths = [str(path) for path in [*WORKER, *ADAPTERS, *LIBRARIES]]
    code = f"""
        for path in {paths!r}:
            with open(path, "rb") as file:
                compile(file.read(), path, "exec")
    """
    run_code(python, code, SOURCE.parent)


@pytest.mark.sampled
def test_every_module_that_needs_the_standard_library_alone_can_be_imported(python, tmp_path):
    names = list(without_numpy())
    code = f"""
        import importlib
        sys.modules["numpy"] = None
        for name in {names!r}:
            if name != "steptime.worker.start":
                importlib.import_module(name)
    """
    run_code(python, code, fill_standin(tmp_path))


def test_a_process_starts_without_numpy():
    expected = {"main", "clock", "framework", "process_context", "session", "tether", "timing", "start"}
    assert {f"steptime.worker.{name}" for name in expected} <= set(without_numpy())
