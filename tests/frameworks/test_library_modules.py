"""The modules of examples/own_module/from_libraries.py are checked and raced as a study trains them."""

import subprocess
from pathlib import Path

import pytest
from launching import interpreter_with
from program import steptime

from steptime.results.record_kinds import TIMING
from steptime.results.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_module"
PACKAGES = (
    "transformers==4.57.1",
    "timm==1.0.31",
    "huggingface-hub==0.36.2",
    "tokenizers==0.22.2",
    "safetensors==0.8.0",
    "regex==2026.11.19",
    "pyyaml==6.0.4",
    "requests==2.34.2",
    "urllib3==2.8.0",
    "idna==3.20",
    "certifi==2026.10.19.post1",
    "charset-normalizer==3.5.3",
    "packaging==26.4",
    "tqdm==4.70.1",
    "torchvision==0.28.0",
)
"""Beside PyTorch's own."""
OPERATORS = """\
import torch
declared = torch.library.Library("torchvision", "DEF")
declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""Without them torchvision cannot be imported beside a PyTorch of another build than its own, whose compiled operators
it lacks then. No module here calls one."""
STUDY = """\
workloads: [{workloads}]
frameworks: pytorch
environments: {{pytorch: {{kind: existing, python: {python}}}}}
strategies: allreduce
workers: 2
batch_per_worker: 4
launches: {{min: 1, max: 1}}
seconds_per_launch: 0.2s
equivalence: {{steps: 3, repeats: 1}}
"""
MODULES = {
    "hf_gpt2": ("gpt2", "tokens"),
    "timm_vit": ("vit", "images"),
    "tv_resnet18": ("resnet18", "images"),
}
pytestmark = [pytest.mark.framework("pytorch"), pytest.mark.further, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What one study of all modules left: its processes import PyTorch and the libraries once for all of them."""
    folder = tmp_path_factory.mktemp("libraries")
    python = interpreter_with("pytorch", PACKAGES, folder)
    alone = subprocess.run([python, "-c", "import torchvision"], capture_output=True, check=False).returncode == 0
    example = (EXAMPLE / "from_libraries.py").read_text()
    (folder / "from_libraries.py").write_text(example if alone else OPERATORS + example)
    # Processes of launches write no bytecode, so that each would compile the libraries anew.
    built = "; ".join(f"from_libraries.{build}()" for build, _ in MODULES.values())
    subprocess.run([python, "-c", f"import from_libraries; {built}"], cwd=folder, check=True)
    workloads = ", ".join(
        f"{{name: {name}, module: from_libraries:{build}, data: from_libraries:{data}}}"
        for name, (build, data) in MODULES.items()
    )
    (folder / "study.yaml").write_text(STUDY.format(workloads=workloads, python=python))
    steptime("run", "study.yaml", "-o", "results", cwd=folder, check=None)
    return Store.open(folder / "results")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_a_library_is_checked_and_timed(name, store):
    (check,) = [check for check in store.equivalence() if check.workload == name]
    assert check.passed, check.reason
    (trial,) = [trial for trial in store.trials() if trial.workload == name]
    assert [launch.status for launch in store.records(TIMING, trial.id)] == ["ok"]
