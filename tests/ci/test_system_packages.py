"""The list of the system's packages: whole, in one place, and what a test says and does where one is missing."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from system_packages import NEEDS, missing, missing_packages

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"
PACKAGES = {package for packages in NEEDS.values() for package in packages}


@pytest.fixture
def without(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return a function that makes variables whose PATH lacks one program."""

    def hide(name: str) -> dict[str, str]:
        programs = tmp_path / "programs"
        programs.mkdir()
        for folder in reversed(os.environ["PATH"].split(os.pathsep)):
            for program in Path(folder).glob("*"):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
        (programs / name).unlink(missing_ok=True)
        return {**os.environ, "PATH": str(programs)}

    return hide


def run(*command: str | Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert missing("mpi") == "missing mpich: apt-get install --no-install-recommends mpich"


def test_what_is_there_is_not_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "mpiexec").touch(mode=0o700)

    assert missing("mpi") is None


def test_an_empty_path_lacks_every_program_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = missing_packages()

    assert {"chromium", "mpich", "bubblewrap"} <= set(found) <= PACKAGES
    assert len(found) == len(set(found))


def test_the_program_prints_one_command_for_all_that_is_missing(tmp_path):
    done = run(CI / "system_packages.py", environment={**os.environ, "PATH": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("apt-get install --no-install-recommends chromium ")
    assert done.stdout.count("\n") == 1


def test_a_system_without_apt_is_told_what_to_install_and_nothing_fails(tmp_path):
    done = run(CI / "system_packages.py", "--install", environment={**os.environ, "PATH": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert "install as root: apt-get install --no-install-recommends chromium " in done.stderr


def test_packages_that_can_be_had_are_installed_where_another_cannot(tmp_path):
    asked, apt = tmp_path / "asked", tmp_path / "apt-get"
    for program in ("env", "sh", "grep"):
        (tmp_path / program).symlink_to(shutil.which(program))
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    apt.write_text(f'#!/bin/sh\necho "$@" >>{asked}\necho "$@" | grep -qv mpich\n')
    for program in ("sudo", "apt-get"):
        (tmp_path / program).chmod(0o700)
    done = run(CI / "system_packages.py", "--install", environment={**os.environ, "PATH": str(tmp_path)})

    together, *each = asked.read_text().splitlines()[1:]
    assert done.returncode == 0, done.stderr
    assert {"mpich", "bubblewrap"} <= set(together.split())
    assert [line.split()[-1] for line in each] == together.split()[together.split().index("chromium") :]


@pytest.mark.needs("root")
def test_a_test_whose_package_is_missing_is_skipped_with_the_command_and_counted_once(without, tmp_path):
    by_mpi = "tests/launchers/test_submitted_jobs.py", "-k", "a_study_by_mpi"
    target = tmp_path / "skipped"
    options = "-p", "no:cacheprovider", "-n", "1", f"--skipped-to={target}"
    done = run("-m", "pytest", *options, *by_mpi, environment=without("mpiexec"))

    assert re.search(r"SKIPPED .* missing .*\bmpich\b.*: apt-get install .*\bmpich\b", done.stdout)
    assert "1 skipped" in done.stdout
    assert target.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (None, "the tests did not run to their end"),
        ([], "no test skipped"),
        (["needs root", "no display", "needs root"], "3 tests skipped: 2 (needs root); 1 (no display)"),
    ],
)
def test_the_last_line_counts_reasons_and_has_one_command(reasons, words, tmp_path):
    if reasons is not None:
        (tmp_path / "skipped").write_text("".join(f"{reason}\n" for reason in reasons))
    (tmp_path / "nothing").mkdir()
    environment = {**os.environ, "PATH": str(tmp_path / "nothing")}
    said = run(CI / "skipped_tests.py", tmp_path / "skipped", environment=environment).stdout

    assert said.startswith(f"{words}. To run more of them, as root: apt-get install --no-install-recommends chromium ")
    assert said.count("\n") == 1


def test_no_other_place_lists_packages():
    places = [CI / "run", ROOT / "Makefile", ROOT / "CONTRIBUTING.md", *(ROOT / "tests").rglob("*.py")]
    listed = re.compile(r"apt(-get)? install .*\b(" + "|".join(map(re.escape, PACKAGES)) + r")\b")
    found = {
        path.relative_to(ROOT): line
        for path in places
        for line in path.read_text(encoding="utf-8").splitlines()
        if listed.search(line) and path != Path(__file__)
    }

    assert found == {}


def test_every_need_of_a_test_is_listed():
    named = {
        need
        for path in (ROOT / "tests").rglob("*.py")
        for call in re.findall(r"(?:mark\.needs|\bmissing)\(([^)]*)\)", path.read_text(encoding="utf-8"))
        for need in re.findall(r'"([a-z]+)"', call)
    }

    assert named - {"root"} <= set(NEEDS)
    assert "hosts" in named
