"""What makes a kept equivalence check invalid."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from trials import trial

import steptime
from steptime.catalog.manifest import Manifest, load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.environments.kinds import ReadyEnvironment
from steptime.equivalence.check import CheckCache
from steptime.results.equivalence_records import EquivalenceResult

PACKAGE = Path(steptime.__file__).parent
READY = ReadyEnvironment("pytorch", "venv", Path("python"), "3.11.2", {"torch": "2.0"})
RESULT = EquivalenceResult(
    framework="pytorch",
    framework_version="2.0",
    strategy="allreduce",
    workload="lenet5",
    input_shape=[1, 28, 28],
    workers=2,
    repeats=3,
    steps=5,
    parameters=61706,
    parameters_expected=61706,
    output_shape=[4, 10],
    first_loss_error=0.0,
    last_loss_error=0.0,
    weight_error=0.0,
    update_error=0.0,
    update_rounding=0.0,
    passed=True,
    reason=None,
)


@dataclass
class Installation:
    """A copy of the code that a check runs, which a test may change."""

    package: Path

    def manifest(self, name: str) -> Manifest:
        return load_manifests()[name].model_copy(update={"folder": self.package / "frameworks" / name})

    def cache(self, **machine: object) -> CheckCache:
        here = {"cpu": "Xeon", "gpus": [], "gpu_driver": None, **machine}
        return CheckCache(self.package.parent / "kept", self.manifest("reference"), self.package, here)

    def key(
        self, workload: str = "lenet5", ready: ReadyEnvironment = READY, setting: str = "5 steps", **machine: object
    ) -> str:
        checked = trial("pytorch", strategy="allreduce", workers=2, workload=workload)
        return self.cache(**machine).key(checked, build_workload(workload), self.manifest("pytorch"), ready, setting)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    for name in (
        "worker",
        "libraries",
        "frameworks/pytorch",
        "frameworks/mxnet",
        "frameworks/reference",
        "equivalence",
    ):
        shutil.copytree(PACKAGE / name, tmp_path / "steptime" / name)
    return Installation(tmp_path / "steptime")


def test_nothing_changed_is_the_same_check(installation):
    assert installation.key() == installation.key()


@pytest.mark.parametrize(
    "path",
    [
        "worker/timing.py",
        "worker/a_new_module.py",
        "libraries/torch/session.py",
        "frameworks/pytorch/adapter.py",
        "frameworks/pytorch/requirements.txt",
        "frameworks/pytorch/framework.toml",
        "frameworks/reference/adapter.py",
        "equivalence/distance.py",
    ],
)
def test_a_change_of_code_that_the_check_runs_invalidates_it(installation, path):
    before = installation.key()
    with (installation.package / path).open("a") as file:
        file.write("\n# changed\n")

    assert installation.key() != before


@pytest.mark.parametrize("path", ["libraries/mxnet/__init__.py", "frameworks/mxnet/adapter.py", "worker/README.md"])
def test_a_change_of_what_the_check_does_not_run_leaves_it_valid(installation, path):
    before = installation.key()
    with (installation.package / path).open("a") as file:
        file.write("\n# changed\n")

    assert installation.key() == before


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "alexnet"},
        {"ready": replace(READY, packages={"torch": "2.1"})},
        {"ready": replace(READY, python_version="3.12.0")},
        {"setting": "1 step"},
        {"cpu": "EPYC"},
        {"gpus": [{"name": "H100", "memory_bytes": 2**36}]},
        {"gpu_driver": "550.54"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_workload_environment_manner_or_machine_is_another_check(installation, change):
    assert installation.key(**change) != installation.key()


def test_a_check_that_passed_is_kept(installation):
    installation.cache().put("key", RESULT)
    assert installation.cache().get("key") == RESULT


def test_a_check_that_did_not_pass_is_done_again(installation):
    installation.cache().put("key", replace(RESULT, passed=False, reason="the loss is not finite"))
    assert installation.cache().get("key") is None


def test_a_damaged_file_is_no_result(installation):
    installation.cache().put("key", RESULT)
    next((installation.package.parent / "kept").glob("*.json")).write_text('{"framework": ')
    assert installation.cache().get("key") is None


def test_a_cache_that_cannot_be_written_is_named_and_is_no_error(installation):
    (installation.package.parent / "kept").write_text("a file in the folder's place")

    assert "cannot be kept" in installation.cache().put("key", RESULT)


def test_many_writers_of_one_check_do_not_disturb_each_other(installation):
    caches = [installation.cache() for _ in range(8)]
    with ThreadPoolExecutor(len(caches)) as pool:
        refusals = list(pool.map(lambda cache: [cache.put("key", RESULT) for _ in range(20)], caches))

    assert {each for refusal in refusals for each in refusal} == {None}
    assert [path.name for path in (installation.package.parent / "kept").iterdir()] == ["key.json"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"passed": "yes"}', "7"])
def test_a_file_of_another_form_is_no_result(installation, text):
    installation.cache().put("key", RESULT)
    next((installation.package.parent / "kept").glob("*.json")).write_text(text)

    assert installation.cache().get("key") is None
