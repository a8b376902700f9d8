"""Launches in containers of a real podman, started by a user who is not root, of an image made of this machine."""

import io
import os
import signal
import subprocess
import tarfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_container_launches import WRITE_MARK_AND_SLEEP, WRITE_PLACE, all_started, of_launch, request

from living_processes import wait_until

pytestmark = pytest.mark.needs("podman")
RUNNER = """
    import sys
    from pathlib import Path
    from steptime.launchers.request import Request
    from steptime.launchers.table import launcher_named
    folder, *container = sys.argv[1:]
    asked = Request(Path(folder), Path("/usr/bin/python3"), 2, time_limit_s=60.0, container=tuple(container))
    outcome = launcher_named("local").run(asked)
    print(outcome.ok, outcome.isolation, outcome.reason)
"""
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
_MEMORY = "/dev/shm"  # noqa: S108 - that all containers share
FOLDERS = ("usr", "etc", "proc", "sys", "dev", "tmp", "run")


def image() -> bytes:
    """Return an archive of folders into which this machine's are mounted."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in (*FOLDERS, *LINKS):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = tarfile.DIRTYPE, "", 0o755
            if name in LINKS:
                entry.type, entry.linkname = tarfile.SYMTYPE, LINKS[name]
            archive.addfile(entry)
    return written.getvalue()


class Podman:
    """A user's podman, whose files lie in the user's folder."""

    def __init__(self, folder: Path, python: Sequence[str]) -> None:
        places = {"HOME": folder / "home", "XDG_RUNTIME_DIR": folder / "run"}
        for place in places.values():
            place.mkdir(mode=0o700)
            os.chown(place, folder.stat().st_uid, folder.stat().st_gid)
        self._user = python[: python.index("env")]
        self._variables = ["env", *(f"{name}={place}" for name, place in places.items())]
        self._python = [*python[: len(self._user)], *self._variables, *python[len(self._user) + 1 :]]
        self._podman = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]  # crun wants groups of version 2
        self._folder = folder
        self.run("import", "-", "machine", sent=image())

    def run(self, *words: str, sent: bytes = b"") -> str:
        """Return what a command of podman prints."""
        command = [*self._user, *self._variables, *self._podman, *words]
        done = subprocess.run(command, input=sent, capture_output=True, check=False, cwd=self._folder)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def launch(self, program: str) -> subprocess.Popen[str]:
        """Start a launch of two workers in containers."""
        request(self._folder, program)
        shared = [f"--volume={place}:{place}" for place in (self._folder, "/usr", _MEMORY)]
        options = ["run", "--rm", "--network=host", "--pid=host", "--env-host", *shared]
        command = [*self._python, "-c", textwrap.dedent(RUNNER), str(self._folder), *self._podman, *options]
        return subprocess.Popen(
            [*command, "localhost/machine"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
        )


@pytest.fixture
def podman(folder: Path, python: list[str]) -> Podman:
    return Podman(folder, python)


def test_workers_run_in_containers_without_a_private_network_which_these_cannot_enter(podman, folder):
    launch = podman.launch(WRITE_PLACE)
    assert launch.communicate(timeout=120)[0] == "True None None\n"
    places = [eval(path.read_text()) for path in sorted(folder.glob("place-*"))]  # noqa: S307 - numbers and text
    assert len({Path("/proc/self/ns/mnt").stat().st_ino, *(place["mounts"] for place in places)}) == 3
    assert {place["network"] for place in places} == {Path("/proc/self/ns/net").stat().st_ino}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_container_outlives_its_runner(podman, folder, number):
    launch = podman.launch(WRITE_MARK_AND_SLEEP)
    assert all_started(folder), launch.communicate()[0]
    launch.send_signal(number)
    launch.communicate(timeout=60)
    assert wait_until(lambda: not of_launch(folder))
    assert wait_until(lambda: podman.run("ps", "--all", "--quiet") == "")
