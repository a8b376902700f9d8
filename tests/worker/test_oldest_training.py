"""The worker half with numpy under Python 3.6: a real training, compared with the same training here."""

from pathlib import Path

import pytest
from launching import LaunchResult, check_job, launch_ok, weight_errors
from standin import run_code

import steptime
from steptime.environments.cache import cache_folder
from steptime.environments.kinds import create
from steptime.environments.spec import EnvironmentSpec
from steptime.errors import EnvironmentFailure

REQUIREMENTS = Path(__file__).parent / "requirements-oldest.txt"


@pytest.fixture(scope="module")
def oldest() -> Path:
    """Python 3.6 with numpy, made in a corner of the cache; skips, with the reason, where it cannot be had."""
    spec = EnvironmentSpec("python-3.6", REQUIREMENTS, ["3.6"], "import numpy")
    try:
        return create(spec, cache=cache_folder() / "tests").interpreter
    except EnvironmentFailure as failure:
        pytest.skip(f"{str(failure).splitlines()[0]}: {failure.fix}" if failure.fix else str(failure).splitlines()[0])


def train(folder: Path, strategy: str, workers: int, python: Path | None = None) -> LaunchResult:
    job = check_job("reference", strategy, "lenet5", steps=3, workers=workers)
    return launch_ok(folder, job, workers=workers, python=python)


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "workers"), [("single", 1), ("allreduce", 2)])
def test_the_reference_gives_the_same_weights_as_under_the_core_s_python(oldest, tmp_path, strategy, workers):
    (old, new) = train(tmp_path, strategy, workers, oldest), train(tmp_path, strategy, workers)
    assert old.record("process")["python"].startswith("3.6.")
    assert max(weight_errors(old.weights[0], new.weights[0]).values()) < 1e-5


def test_every_module_of_the_worker_can_be_imported_with_its_annotations(oldest):
    source = Path(steptime.__file__).parent
    names = [f"steptime.worker.{path.stem}" for path in sorted((source / "worker").glob("*.py"))]
    code = f"""
        import importlib, types, typing
        package = types.ModuleType("steptime")
        package.__path__ = [{str(source)!r}]  # without what is imported with the core's package
        sys.modules["steptime"] = package
        for name in {names!r}:
            module = importlib.import_module(name)
            assert typing.get_type_hints(module) is not None
    """
    run_code(oldest, code, source.parent)
