"""What holds for the folder of every framework, whether or not the framework is installed."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import steptime
from steptime.environments.locks import requirement_lines
from steptime.frameworks.manifest import Manifest, load_manifest, load_manifests
from steptime.launchers.table import LAUNCHERS
from steptime.runner.run_folder import make_run_folder
from steptime.study.loaders import LOADERS
from steptime.study.strategies import STRATEGIES

TYPES = {"bool": bool, "int": int, "float": float, "str": str}


@pytest.fixture(params=sorted(load_manifests()))
def manifest(request: pytest.FixtureRequest) -> Manifest:
    """The manifest of each room."""
    return load_manifests()[request.param]


def requirements(manifest: Manifest) -> list[Requirement]:
    return [Requirement(line) for line in requirement_lines(manifest.requirements)]


def finished(manifest: Manifest) -> list[Requirement]:
    """Return what a room's own program adds to the environment: those of its arguments that pin something."""
    return [Requirement(each) for each in manifest.finish[1:] if "==" in each]


def sources(manifest: Manifest) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files of a room, parsed."""
    for path in sorted(manifest.folder.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def readers(manifest: Manifest) -> Iterator[ast.Module]:
    """Yield the files of a framework and of the libraries that it shares."""
    for _, tree in sources(manifest):
        yield tree
    for library in manifest.libraries:
        for path in (Path(steptime.__file__).parent / "libraries" / library).glob("*.py"):
            yield ast.parse(path.read_text())


def imported(tree: ast.Module) -> set[str]:
    """Return the full names of all modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            assert node.module is not None
            found.add(node.module)
    return found


def test_there_are_the_rooms_that_the_readme_promises():
    assert {"reference", "pytorch", "tensorflow", "mxnet", "chainer"} <= set(load_manifests())


def test_a_manifest_with_an_unknown_key_is_refused(tmp_path):
    path = tmp_path / "framework.toml"
    path.write_text('title = "X"\ndistribution = "x"\npython = ["3.11"]\nstrategys = {}\n[strategies.single]\n')
    with pytest.raises(ValueError, match="strategys"):
        load_manifest(path)


def test_a_room_trains_alone_and_knows_only_strategies_that_the_table_explains(manifest):
    assert manifest.strategies["single"].max_workers == 1
    assert set(manifest.strategies) <= set(STRATEGIES)


def test_every_strategy_is_started_by_a_launcher_that_exists_and_takes_workers(manifest):
    for name, support in manifest.strategies.items():
        assert support.launcher in LAUNCHERS
        assert 1 <= support.min_workers <= (support.max_workers or support.min_workers)
        others = STRATEGIES[name].servers or support.scheduler
        assert not (support.launcher == "mpi" and others), "mpiexec starts workers only"


def test_its_pythons_devices_and_loaders_are_said(manifest):
    assert manifest.title
    assert manifest.python
    assert all(re.fullmatch(r"3\.\d+", version) for version in manifest.python)
    assert manifest.devices[0] == "cpu"
    assert manifest.precisions[0] == "fp32"
    assert set(manifest.precisions) <= {"fp32", "bf16"}, "processors have no others"
    assert manifest.cuda_precisions[0] == "fp32"
    assert "synthetic" in manifest.loaders
    assert set(manifest.loaders) <= set(LOADERS)


def test_every_requirement_is_pinned_or_ranged(manifest):
    lines = requirements(manifest)
    assert lines
    assert [str(line) for line in lines if not line.specifier] == []


def test_the_distribution_that_gives_the_version_is_required_and_pinned(manifest):
    lines = requirements(manifest) + finished(manifest)
    own = [line for line in lines if line.name.lower() == manifest.distribution.lower()]
    assert own
    assert len({str(line.marker) for line in own}) == len(own), "several lines must be of different Pythons"
    if manifest.environment == "own":
        assert {each.operator for line in own for each in line.specifier} == {"=="}


def test_a_framework_has_a_build_for_cuda_devices_or_says_why_not(manifest):
    assert bool(manifest.cuda) != bool(manifest.without_cuda)
    for build in manifest.cuda:
        assert re.fullmatch(r"requirements-cuda\d*\.txt", build.requirements)
        assert requirement_lines(manifest.folder / build.requirements)
        compile(build.verify, str(manifest.folder / "framework.toml"), "exec")
        assert bool(build.newest) == bool(build.why_not_newer)


def test_an_environment_can_be_verified(manifest):
    compile(manifest.verify, str(manifest.folder / "framework.toml"), "exec")
    assert "import" in manifest.verify


def test_what_is_peculiar_is_said(manifest):
    assert manifest.notes
    assert all(note.endswith(".") for note in manifest.notes)
    assert (manifest.folder / "README.md").exists()


def test_every_option_is_explained_and_its_default_is_one_of_its_values(manifest):
    for name, option in manifest.options.items():
        assert len(option.help) > 10, name
        assert type(option.default) is TYPES[option.type], name
        assert option.default in (option.choices or [option.default]), name
        assert all(type(choice) is TYPES[option.type] for choice in option.choices), name
        assert set(option.strategies) <= set(manifest.strategies), name


def test_every_option_is_read_by_the_framework_or_a_library_of_its(manifest):
    texts = {
        node.value
        for tree in readers(manifest)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(manifest.options) <= texts


def test_a_framework_imports_nothing_of_steptime_but_the_worker_its_libraries_and_itself(manifest):
    packages = ["worker", f"frameworks.{manifest.name}", *(f"libraries.{name}" for name in manifest.libraries)]
    allowed = tuple(f"steptime.{package}." for package in packages)
    for path, tree in sources(manifest):
        ours = {name for name in imported(tree) if name.split(".")[0] == "steptime"}
        assert [name for name in ours if not f"{name}.".startswith(allowed)] == [], path


def test_a_room_imports_nothing_that_belongs_to_the_core_or_to_another_framework(manifest):
    required = {line.name.lower() for line in requirements(manifest)} | {"numpy"}
    core = {
        module
        for module, distributions in packages_distributions().items()
        if not required & {each.lower() for each in distributions}
    }
    others = {each.distribution.split("-")[0] for each in load_manifests().values()} - {
        manifest.distribution.split("-")[0]
    }
    foreign = (core | others) - set(sys.stdlib_module_names) - {"steptime", *required}
    for path, tree in sources(manifest):
        assert {name.split(".")[0] for name in imported(tree)} & foreign == set(), path


def test_its_adapter_can_be_imported_where_nothing_but_numpy_is_installed(manifest, tmp_path):
    make_run_folder(tmp_path, manifest.folder, {}, manifest.libraries)
    code = f"""
import importlib, json, sys
sys.path.insert(0, {str(tmp_path)!r})
before = set(sys.modules)
adapter = importlib.import_module("steptime.frameworks.{manifest.name}.adapter")
loaded = {{name.split(".")[0] for name in set(sys.modules) - before}}
foreign = sorted(loaded - set(sys.stdlib_module_names) - {{"numpy", "steptime", "cython_runtime"}})
given = [name for name, function in adapter.FRAMEWORK._asdict().items() if function]
print(json.dumps({{"foreign": foreign, "file": adapter.__file__, "given": given}}))
"""
    environment = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["file"].startswith(str(tmp_path))
    assert [name for name in found["foreign"] if not name.startswith("_")] == []
    assert "open_session" in found["given"]
    needs_others = any(STRATEGIES[name].servers or each.scheduler for name, each in manifest.strategies.items())
    assert ("serve" in found["given"]) == needs_others
