"""Whatever fails on steptime's side, the command runs as without it, and one line names what was not measured."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from program import PROGRAM

NOT_MEASURED = "steptime attach: not measured, and started as without it: "
COMMAND = ("sh", "-c", "echo out; echo err >&2; exit 7")


def attach(output: Path | None, *words: str, cwd: Path, **more) -> subprocess.CompletedProcess[str]:
    place = [] if output is None else ["-o", str(output)]
    command = [*PROGRAM, "attach", *place, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd, **more)


def a_file(place: Path) -> Path:
    (place / "file").write_text("")
    return place / "file" / "results"


def everybody_may_write(place: Path) -> Path:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    return place / "open" / "results"


def a_kernel_file_system(place: Path) -> Path:
    return Path("/proc/results")


def no_utf8(place: Path) -> Path:
    return place / os.fsdecode(b"\xff")


def a_long_name(place: Path) -> Path:
    return place / ("x" * 300)


def a_file_for_all_results(place: Path) -> None:
    (place / "steptime-results").write_text("")


UNUSABLE = (
    a_file,
    everybody_may_write,
    a_kernel_file_system,
    no_utf8,
    a_long_name,
    a_file_for_all_results,
)


@pytest.mark.sampled
@pytest.mark.parametrize("make", UNUSABLE, ids=lambda make: make.__name__)
def test_a_folder_that_cannot_be_used_keeps_no_command_from_running(tmp_path, make):
    done = attach(make(tmp_path), *COMMAND, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "out\n")
    why, err = done.stderr.splitlines()
    assert why.startswith(NOT_MEASURED)
    assert err == "err"


def test_a_full_disk_keeps_no_command_from_running(tmp_path):
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))}
    done = attach(tmp_path / "results", *COMMAND, cwd=tmp_path, **full)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.startswith(NOT_MEASURED)
    assert not (tmp_path / "results").exists()


ONLY_OF_ANSWERS = ("numpy", "scipy", "rich.console", "steptime.study.trial", "steptime.results.attached_files")


@pytest.mark.parametrize("module", ONLY_OF_ANSWERS)
def test_a_command_waits_for_no_import_that_its_answer_alone_needs(imports, module):
    before, after = imports

    assert module not in before
    assert module in after


@pytest.fixture(scope="module")
def imports(tmp_path_factory):
    """What the program imports before and after its command runs, which is no Python process."""
    place = tmp_path_factory.mktemp("imports")
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = attach(place / "results", "sh", "-c", "echo BEGUN >&2", cwd=place, env=environment)
    parts = done.stderr.split("BEGUN\n")
    assert len(parts) == 2, done.stderr
    return [{line.rpartition("|")[2].strip() for line in part.splitlines()} for part in parts]


def test_a_signal_ends_a_command_that_is_not_measured(tmp_path):
    done = attach(Path("/proc/results"), "sh", "-c", "kill -KILL $$", cwd=tmp_path)
    assert done.returncode == -9


def other_files(place: Path) -> None:
    (place / "results").mkdir()
    (place / "results" / "notes.txt").write_text("mine")


def a_file_of_this_name(place: Path) -> None:
    (place / "results").write_text("mine")


def a_dead_link(place: Path) -> None:
    (place / "results").symlink_to("nowhere")


@pytest.mark.sampled
@pytest.mark.parametrize("make", [other_files, a_file_of_this_name, a_dead_link], ids=lambda make: make.__name__)
def test_a_name_that_is_taken_gets_a_sibling_with_a_number(tmp_path, make):
    make(tmp_path)
    done = attach(tmp_path / "results", *COMMAND, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert (tmp_path / "results-2" / "attached.json").is_file()


WHILE_IT_RUNS = {
    "results removed": "import shutil; shutil.rmtree('results')",
    "records replaced": "import os, shutil; shutil.rmtree('results/attached'); open('results/attached', 'w').close()",
    "header replaced": "import os; os.remove('results/attached.json'); os.mkdir('results/attached.json')",
    "hook removed": (
        "import shutil, subprocess, sys; shutil.rmtree('results/hook'); subprocess.run([sys.executable, '-c', 'pass'])"
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", WHILE_IT_RUNS)
def test_damage_while_the_command_runs_changes_nothing_of_its_end(tmp_path, what):
    script = f"{WHILE_IT_RUNS[what]}; print('out'); raise SystemExit(7)"
    done = attach(tmp_path / "results", sys.executable, "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "Traceback" not in done.stderr


BROKEN_HOOK = """
import os, pathlib, subprocess, sys
for file in pathlib.Path("results/hook").rglob("imports.py"):
    file.write_text("raise RuntimeError('broken')")
sys.exit(subprocess.run([sys.executable, "-c", "print('out')"], preexec_fn=lambda: os.close(2)).returncode)
"""


def test_a_hook_that_fails_without_standard_error_harms_no_python(tmp_path):
    done = attach(tmp_path / "results", sys.executable, "-c", BROKEN_HOOK, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "out\n")


@pytest.mark.sampled
@pytest.mark.parametrize("output", ["results", "/proc/results"], ids=["measured", "not measured"])
def test_the_command_has_the_umask_of_its_caller(tmp_path, output):
    loose = {"preexec_fn": lambda: os.umask(0o002)}
    done = attach(Path(output), "sh", "-c", "umask", cwd=tmp_path, **loose)
    assert done.stdout.strip() == "0002"


def test_what_steptime_writes_has_no_writer_but_its_owner(tmp_path):
    attach(tmp_path / "results", "true", cwd=tmp_path, preexec_fn=lambda: os.umask(0))
    modes = {path: path.stat().st_mode & 0o022 for path in (tmp_path / "results").rglob("*")}
    assert not any(modes.values())
