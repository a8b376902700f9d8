"""A worker holds its environment against what the study set."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from steptime.worker import start
from steptime.worker.main import require_variables


def job(**variables: str) -> dict[str, object]:
    return {"framework": "mxnet", "environment_variables": variables}


def test_a_value_that_is_there_is_accepted(monkeypatch):
    monkeypatch.setenv("OMP_SCHEDULE", "auto")

    require_variables(job(OMP_SCHEDULE="auto"))


def test_a_value_to_which_the_adapter_added_is_accepted(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a --xla_cpu_multi_thread_eigen=false")

    require_variables(job(XLA_FLAGS="--a"))


@pytest.mark.parametrize("found", ["static", None])
def test_a_value_that_the_adapter_replaced_fails_the_launch_with_both(monkeypatch, found):
    monkeypatch.delenv("OMP_SCHEDULE", raising=False)
    if found is not None:
        monkeypatch.setenv("OMP_SCHEDULE", found)

    with pytest.raises(RuntimeError, match=f"sets OMP_SCHEDULE to 'auto', and mxnet has changed it to {found!r}"):
        require_variables(job(OMP_SCHEDULE="auto"))


SAID = """
import json, os
def run_process(_):
    print(json.dumps([os.environ["LD_LIBRARY_PATH"], os.environ.get("STEPTIME_LIBRARY_PATH_LEFT_OUT")]))
    return 0
"""


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_worker_on_a_gpu_does_without_folders_that_hide_libraries_of_its_environment(tmp_path, device):
    """Another cuDNN lies in one of two folders of the library path; the job decides before anything is loaded."""
    venv.create(tmp_path / "environment", symlinks=True)
    python = tmp_path / "environment/bin/python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = tmp_path / "environment/lib" / version / "site-packages/nvidia/cudnn/lib"
    others, plain = tmp_path / "others", tmp_path / "plain"
    for folder in (own, others, plain, tmp_path / "steptime/worker"):
        folder.mkdir(parents=True)
    for path in (own / "libcudnn.so.9", others / "libcudnn.so.9", plain / "libmine.so"):
        path.touch()
    (tmp_path / "steptime/worker/main.py").write_text(SAID)
    (tmp_path / "start.py").write_text(Path(start.__file__).read_text())
    (tmp_path / "job.json").write_text(json.dumps({"device": device}))
    library_path = f"{others}:{plain}"

    done = subprocess.run(
        [python, "start.py", "job.json"],
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
        check=True,
        capture_output=True,
        text=True,
    )

    assert json.loads(done.stdout) == ([str(plain), str(others)] if device == "cuda" else [library_path, None])
