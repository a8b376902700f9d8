"""An environment for CUDA devices is one of its own, and what cannot run here is refused before anything is made."""

import json

import pytest
from typer.testing import CliRunner

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.manifest import load_manifests
from steptime.cli.env import _for_device, app
from steptime.environments.locks import lock_of
from steptime.errors import EnvironmentFailure
from steptime.runner.preparation import all_environment_specs, environment_spec


def machine(capability: tuple[int, int], driver: str) -> Accelerators:
    return Accelerators((Accelerator("a GPU", "GPU-1", capability, 8e10),), driver)


def test_an_environment_is_made_from_its_own_requirements_and_not_from_those_of_the_other_device():
    specs = all_environment_specs()

    plain = [path.name for path in specs["pytorch"].requirement_files]
    cuda = [path.name for path in specs["pytorch-cuda"].requirement_files]

    assert plain == ["requirements.cpu.txt", "requirements.txt"]
    assert cuda == ["requirements-cuda.txt"]


@pytest.mark.parametrize(
    ("driver", "name"), [("580.65.06", "pytorch-cuda"), ("535.104.05", "pytorch-cuda12"), (None, "pytorch-cuda")]
)
def test_the_build_is_the_newest_that_the_driver_runs(driver, name):
    found = machine((9, 0), driver) if driver else Accelerators()

    assert environment_spec(load_manifests()["pytorch"], None, "cuda", found).name == name


@pytest.mark.parametrize(
    ("framework", "driver", "name"),
    [
        ("pytorch", "580.65.06", "pytorch-cuda-dali"),
        ("pytorch", "535.104.05", "pytorch-cuda12-dali"),
        ("jax", "580.65.06", "jax-cuda-dali"),
        ("deepspeed", "580.65.06", "deepspeed-cuda-dali"),
    ],
)
def test_dali_has_an_environment_with_each_build_of_the_same_toolkit(framework, driver, name):
    spec = environment_spec(load_manifests()[framework], None, "cuda", machine((9, 0), driver), "dali")
    assert spec.name == name
    assert "nvidia.dali" in spec.verify
    assert lock_of(spec.requirements).exists()


def test_the_command_makes_the_environment_of_a_loader_for_the_device(monkeypatch):
    monkeypatch.setattr("steptime.catalog.accelerators.find_accelerators", lambda: machine((9, 0), "580.65.06"))
    (spec,), refused = _for_device(["pytorch-dali"], "cuda", everything=False)
    assert (spec.name, refused) == ("pytorch-cuda-dali", {})


@pytest.mark.parametrize(
    ("framework", "accelerators", "reason"),
    [
        ("mxnet", machine((9, 0), "580.65.06"), "no intermediate code that a driver could compile for Hopper or newer"),
        ("pytorch", machine((9, 0), "470.57.02"), "needs the driver 525.60.13 or newer, and this machine has 470"),
        ("tensorflow", machine((7, 0), "580.65.06"), "code from compute capability 7.5 on, and a device here has 7.0"),
        ("tensorflow", machine((12, 0), "580.65.06"), "runs up to compute capability 9.0, and a device here has 12.0"),
        ("tensorflow", machine((9, 0), "535.104.05"), "compiled by the driver, which must be 555.42.02 or newer"),
        ("pytorch", machine((13, 0), "580.65.06"), "runs up to compute capability 12.1, and a device here has 13.0"),
        ("jax", machine((7, 0), "580.65.06"), "code from compute capability 7.5 on, and a device here has 7.0"),
        ("chainer", machine((10, 0), "580.65.06"), "runs up to compute capability 9.0, and a device here has 10.0"),
        ("tensorflow1", machine((7, 0), "580.65.06"), "CUDA 10.0, of whose libraries the package index has none"),
        ("cntk", Accelerators(), "machine code up to compute capability 7.5 only"),
    ],
)
def test_what_cannot_run_on_the_machine_is_refused_with_the_reason(framework, accelerators, reason):
    with pytest.raises(EnvironmentFailure, match=reason):
        environment_spec(load_manifests()[framework], None, "cuda", accelerators)


def test_the_command_refuses_it_before_anything_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path))

    done = CliRunner().invoke(app, ["create", "caffe", "--device", "cuda", "--json"])

    assert done.exit_code == 3
    assert "build for processors" not in done.stdout.split('"reason"')[0]
    assert "Debian's for processors" in json.loads(done.stdout[done.stdout.index("[") :])[0]["reason"]
    assert not (tmp_path / "environments").exists()
