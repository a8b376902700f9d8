"""What holds for the folder of every framework, whether or not the framework is installed.

The demands are those of ``file_findings``, which ``steptime check`` makes too; each refuses a planted mistake.
"""

import re
import shutil
from pathlib import Path

import pytest

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import Manifest, load_manifest, load_manifests
from steptime.runner.extending.files import file_findings

RIGHT = load_manifests()["pytorch"].folder
"""The folder into which mistakes are planted: one with strategies of several workers, servers, loaders and CUDA."""


@pytest.fixture(params=sorted(load_manifests()))
def manifest(request: pytest.FixtureRequest) -> Manifest:
    """The manifest of each framework."""
    return load_manifests()[request.param]


def test_there_are_the_frameworks_that_the_readme_promises():
    assert {"reference", "pytorch", "tensorflow", "mxnet", "chainer"} <= set(load_manifests())


def test_a_manifest_with_an_unknown_key_is_refused(tmp_path):
    path = tmp_path / "framework.toml"
    path.write_text('title = "X"\ndistribution = "x"\npython = ["3.11"]\nstrategys = {}\n[strategies.single]\n')
    with pytest.raises(ValueError, match="strategys"):
        load_manifest(path)


def test_the_files_of_a_framework_meet_every_demand(manifest):
    findings = file_findings(manifest)
    assert len(findings) > 10
    assert [(each.what, each.detail) for each in findings if not each.ok] == []


def test_every_option_has_choices_bounds_or_a_form(manifest):
    """So that a study is refused with a value that its workers would fail with."""
    without = [
        name
        for name, option in manifest.options.items()
        if not option.choices
        and not (option.type == "bool" or option.pattern)
        and not (
            (option.minimum is not None or option.above is not None)
            and (option.maximum is not None or option.below is not None)
        )
    ]
    assert without == []


ONE_OPTION = """
title = "X"
distribution = "x"
python = ["3.11"]
[strategies.single]
[options.size]
help = "how large something is, in values"
"""


@pytest.mark.parametrize("lines", ['type = "int"\ndefault = -3', 'type = "str"\ndefault = "x"'])
def test_an_option_without_bounds_takes_every_value_of_its_type(tmp_path, lines):
    (tmp_path / "framework.toml").write_text(ONE_OPTION + lines)
    option = load_manifest(tmp_path / "framework.toml").options["size"]
    assert option.mistake("size", option.default) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('type = "int"\ndefault = 0\nminimum = 1', "default must be at least 1, not 0"),
        ('type = "str"\ndefault = "x"\nminimum = 1', "bounds mean nothing to the type str"),
        ('type = "int"\ndefault = 1\npattern = "a"\nexamples = ["a"]', "pattern and examples mean nothing to the type"),
        ('type = "str"\ndefault = "a"\npattern = "a"', "pattern needs examples"),
        ('type = "str"\ndefault = "a"\npattern = "("\nexamples = ["a"]', "is not a regular expression"),
        ('type = "str"\ndefault = "a"\npattern = "a"\nexamples = ["b"]', "examples cannot be 'b'"),
    ],
)
def test_limits_that_do_not_fit_their_option_are_refused(tmp_path, lines, said):
    (tmp_path / "framework.toml").write_text(ONE_OPTION + lines)
    with pytest.raises(ValueError, match=re.escape(said)):
        load_manifest(tmp_path / "framework.toml")


def test_a_framework_has_a_server_where_a_strategy_needs_one(manifest):
    needs = any(STRATEGIES[name].servers or each.scheduler for name, each in manifest.strategies.items())
    assert needs == ("serve=" in (manifest.folder / "adapter.py").read_text())


def mistakes(folder: Path, file: str, right: str, wrong: str) -> str:
    """Return what is found wrong with a copy of ``RIGHT`` in which a text of a file is replaced."""
    copy = folder / "pytorch"
    shutil.copytree(RIGHT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / file).read_text()
    assert right in text
    (copy / file).write_text(text.replace(right, wrong))
    return "; ".join(each.detail for each in file_findings(load_manifest(copy / "framework.toml")) if not each.ok)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "said"),
    [
        ("framework.toml", "[strategies.single]", "[strategies.solo]", "[strategies.single] is missing"),
        ("framework.toml", 'devices = ["cpu", ', "devices = [", "devices must begin with 'cpu'"),
        ("framework.toml", '"synthetic", ', "", "loaders must have 'synthetic'"),
        ("framework.toml", 'title = "PyTorch"', 'title = ""', "title is empty"),
        (
            "framework.toml",
            'verify = "import torch, torch.distributed, numpy, PIL.Image; ',
            'verify = "',
            "verify imports nothing",
        ),
        ("framework.toml", "notes = [", 'notes = [\n    "no full stop",', "does not end with a full stop"),
        ("framework.toml", "[options.bucket_mb]", "[options.bucket_gb]", "[options.bucket_gb] is read by no file"),
        ("framework.toml", "[preloading]\n", "[preloading]\nthread = 1\n", "preloading.thread"),
        ("requirements.txt", "torch==", "torch>=", "must be pinned with =="),
        ("requirements.txt", "numpy>=", "numpy\n# ", "has no version"),
        ("adapter.py", "\n\nfrom steptime", "\n\nimport torch\nfrom steptime", "import the framework inside functions"),
        ("strategies.py", "import torch\n", "import torch\nimport pydantic\n", "imports pydantic, which requirements"),
        ("strategies.py", "import torch\n", "import torch\nimport mxnet\n", "imports mxnet, which requirements"),
        (
            "strategies.py",
            "import torch\n",
            "import torch\nfrom steptime.study import trial\n",
            "imports steptime.study, which is not in worker",
        ),
        ("adapter.py", ", serve_back_end=serve_back_end", "", "FRAMEWORK has no serve_back_end=, which "),
        ("contract.py", "    batches,\n    weights,\n    faults", "    faults", "CONTRACT has no batches="),
        ("contract.py", "    batches,\n    weights,\n    faults", "    faults", "CONTRACT has no weights="),
        ("contract.py", "        KEPT_GRADIENT: _keep_back,\n", "", "has no the fault 'gradient of one array"),
        ("contract.py", "CONTRACT = ", "HOOKS = ", "contract.py must end in CONTRACT"),
    ],
)
def test_a_mistake_is_refused_in_a_sentence_that_names_it(tmp_path, file, right, wrong, said):
    try:
        found = mistakes(tmp_path, file, right, wrong)
    except ValueError as error:
        found = str(error)
    assert said in found


@pytest.mark.parametrize("missing", ["contract.py", "README.md", "requirements.txt", "requirements.lock"])
def test_a_missing_file_is_named(tmp_path, missing):
    copy = tmp_path / "pytorch"
    shutil.copytree(RIGHT, copy, ignore=shutil.ignore_patterns("__pycache__", missing))
    findings = file_findings(load_manifest(copy / "framework.toml"))
    said = "steptime env lock" if missing.endswith(".lock") else f"{missing} is missing"
    assert said in "; ".join(each.detail for each in findings if not each.ok)


def test_a_framework_without_a_build_for_gpus_gives_the_reason(tmp_path):
    manifest = 'title = "X"\ndistribution = "x"\npython = ["3.11"]\n[strategies.single]\nmax_workers = 1\n'
    (tmp_path / "framework.toml").write_text(manifest)
    said = "; ".join(each.detail for each in file_findings(load_manifest(tmp_path / "framework.toml")) if not each.ok)
    assert "or without_cuda with the reason" in said
    assert "notes is empty" in said


def test_a_file_of_the_own_folder_may_be_imported_relatively(tmp_path):
    wrong = "import torch\nfrom .communication import POLICIES\n"
    assert not mistakes(tmp_path, "strategies.py", "import torch\n", wrong)
