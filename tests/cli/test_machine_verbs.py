"""``steptime doctor`` and ``steptime env``: what this machine has."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from program import PROGRAM, steptime

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.manifest import load_manifests
from steptime.cli.app import run_program
from steptime.runner import doctor


def test_doctor_says_of_everything_whether_it_is_well(tmp_path):
    findings = json.loads(steptime("doctor", "--json", cwd=tmp_path).stdout)
    assert {finding["status"] for finding in findings} <= {"ok", "note", "missing"}
    assert all(finding["detail"] for finding in findings)
    names = [finding["name"] for finding in findings]
    assert set(names) >= {"python", "cores", "memory", "disk", "load", "cuda", "mpi", *load_manifests()}
    assert len(set(names)) == len(names)


def test_doctor_names_the_command_for_what_is_missing(tmp_path):
    findings = json.loads(steptime("doctor", "--json", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path)).stdout)
    by_name = {finding["name"]: finding for finding in findings}
    for name, manifest in load_manifests().items():
        if manifest.environment == "own":
            assert by_name[name]["status"] in ("note", "missing")
            assert by_name[name]["fix"]


def test_doctor_leaves_nothing_behind(tmp_path):
    steptime("doctor", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path / "cache"))
    assert not list(tmp_path.iterdir())


def test_doctor_tells_people_the_same_in_words(tmp_path):
    text = steptime("doctor", cwd=tmp_path).stdout
    assert all(f"{name}:" in text for name in ("python", "cores"))
    assert set(load_manifests()) <= set(re.findall(r"\w+", text))


def test_doctor_lists_the_frameworks_that_are_not_installed_in_one_line_with_the_command(tmp_path):
    text = steptime("doctor", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path), COLUMNS="300").stdout
    (line,) = [line for line in text.splitlines() if "not installed" in line]
    assert {"pytorch", "tensorflow", "mxnet"} <= set(re.findall(r"\w+", line))
    assert text.endswith("→ steptime env create NAME\n")


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_doctor_fits_the_window_and_breaks_no_word(tmp_path, columns):
    text = steptime("doctor", cwd=tmp_path, COLUMNS=str(columns)).stdout
    wide = [line for line in text.splitlines() if len(line) > columns]
    assert [line for line in wide if max(map(len, line.split())) < columns - 12] == []
    assert sys.executable in text.split()


def test_env_list_breaks_no_name_of_a_folder_at_80_columns(tmp_path):
    names = ["horovod_tensorflow-dali-72f74d8e387e", "pytorch-cuda130-0fd84f1c70c4"]
    for name in names:
        (tmp_path / "environments" / name).mkdir(parents=True)
    text = steptime("env", "list", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path), COLUMNS="80").stdout
    assert set(names) <= set(text.split())


def test_doctor_examines_a_machine_on_which_its_user_has_no_home_folder(monkeypatch, capsys):
    for name in ("HOME", "STEPTIME_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # as in a container that runs as --user 4000000000

    assert run_program(["doctor", "--json"]) == 0

    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert set(findings) >= {"python", *load_manifests()}
    assert findings["disk"]["status"] == "missing"
    assert "STEPTIME_CACHE" in findings["disk"]["fix"]


def test_doctor_notes_the_shared_memory_of_a_container(tmp_path):
    """64 MB, as Docker gives it."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    inside = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", inside, "sh", *PROGRAM, "doctor", "--json"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )

    (found,) = [finding for finding in json.loads(done.stdout) if finding["name"] == "shared memory"]
    assert found["status"] == "note"
    assert found["detail"].startswith("64 MiB free of 64 MiB in /dev/shm")
    assert "--shm-size" in found["fix"]


@pytest.mark.parametrize(
    ("lost", "package"),
    [({"which": lambda _: None}, "gcc"), ({"ask": lambda *_: (0, "/nowhere")}, "-dev")],
    ids=["compiler", "headers"],
)
def test_doctor_notes_what_a_gpu_lacks_to_compile_its_kernels(monkeypatch, capsys, lost, package):
    gpu = Accelerators((Accelerator("a GPU"),), "580.65.06")
    monkeypatch.setattr(doctor, "find_accelerators", lambda: gpu)
    for name, stand_in in lost.items():
        monkeypatch.setattr(doctor.shutil if name == "which" else doctor, name, stand_in)
    assert run_program(["doctor", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["cuda"]["detail"] == "a GPU, driver 580.65.06"
    assert package in found["cuda compiler"]["fix"]


def test_an_empty_cache_is_an_empty_list_of_environments(tmp_path):
    said = steptime("env", "list", "--json", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path / "none")).stdout
    assert json.loads(said) == []


def test_every_environment_that_is_listed_says_where_it_is_and_whether_it_is_whole(tmp_path):
    rows = json.loads(steptime("env", "list", "--json", cwd=tmp_path).stdout)
    for row in rows:
        assert row["name"]
        assert isinstance(row["ready"], bool)
        assert isinstance(row["current"], bool)
        assert row["bytes"] > 0
        assert row["folder"].startswith("/")


def test_the_core_needs_no_environment_to_be_made(tmp_path):
    done = steptime("env", "create", "reference", cwd=tmp_path, STEPTIME_CACHE=str(tmp_path / "cache"))
    assert "ready, Python 3." in done.stdout
    assert "PATH=" not in done.stdout


@pytest.mark.framework("pytorch")
def test_a_command_that_runs_a_script_in_an_environment_can_be_pasted_at_80_columns(tmp_path):
    done = steptime("env", "create", "pytorch", cwd=tmp_path, COLUMNS="80")
    (line,) = (line for line in done.stdout.splitlines() if "PATH=" in line)
    (tmp_path / "train.py").write_text("import torch; print('imported')")
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True).stdout == b"imported\n"


@pytest.mark.skipif(
    shutil.which("python3.6", path="/usr/bin:/bin:/usr/local/bin") is not None, reason="the system has a Python 3.6"
)
def test_what_cannot_be_built_stands_in_a_table_with_why_and_what_would_help(tmp_path):
    nowhere = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    done = steptime(
        "env", "create", "cntk", "reference", "--json", cwd=tmp_path, check=3, STEPTIME_CACHE=str(tmp_path), **nowhere
    )
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["reference"]["ready"]
    assert "needs 3.6" in rows["cntk"]["reason"]
    assert "3.6" in rows["cntk"]["fix"]
