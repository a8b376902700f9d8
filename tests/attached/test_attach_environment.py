"""The variables that attach what somebody else starts, in each form."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import ruamel.yaml
from program import steptime

SHOW = "import os, sitecustomize; print(sitecustomize.__file__); print(os.environ['STEPTIME_ATTACH'])"


def printed(folder, form: str) -> str:
    return steptime("attach", "--environment", "--format", form, "-o", str(folder / "runs"), cwd=folder).stdout


def from_shell(text: str) -> dict[str, str]:
    done = subprocess.run(
        ["sh", "-c", f"{text}\nenv"], capture_output=True, text=True, check=True, env={"PATH": os.defpath}
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def from_docker(text: str) -> dict[str, str]:
    words = shlex.split(text)
    return dict(words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "--env")


READERS = {
    "sh": from_shell,
    "yaml": lambda text: {item["name"]: item["value"] for item in ruamel.yaml.YAML(typ="safe").load(text)},
    "json": json.loads,
    "docker": from_docker,
}


@pytest.mark.sampled
@pytest.mark.parametrize("form", READERS)
def test_each_form_attaches_a_python_that_is_started_with_it(tmp_path, form):
    variables = READERS[form](printed(tmp_path, form))
    found = {name: variables[name] for name in ("PYTHONPATH", "STEPTIME_ATTACH")}
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, env=found)
    assert done.stdout.splitlines() == [
        str(tmp_path / "runs" / "hook" / "sitecustomize.py"),
        str(tmp_path / "runs" / "attached"),
    ]


def test_a_path_of_the_shell_is_kept(tmp_path):
    done = ["sh", "-c", f"export PYTHONPATH=mine\n{printed(tmp_path, 'sh')}\necho $PYTHONPATH"]
    path = subprocess.run(done, capture_output=True, text=True, check=True).stdout.strip()
    assert path == f"{tmp_path}/runs/hook:mine"


def test_docker_mounts_the_hook_read_only(tmp_path):
    assert f"--volume {tmp_path}/runs/hook:{tmp_path}/runs/hook:ro" in printed(tmp_path, "docker")


def test_the_folder_can_be_reported_before_anything_has_trained(tmp_path):
    printed(tmp_path, "sh")
    assert "no step was seen" in steptime("report", "runs", cwd=tmp_path).stdout


@pytest.mark.parametrize("words", [[], ["--format", "sh", "--", "true"], ["--environment", "--format", "toml"]])
def test_other_uses_are_refused(tmp_path, words):
    done = steptime("attach", *words, cwd=tmp_path, check=2)
    assert done.stderr.startswith("error: ")
