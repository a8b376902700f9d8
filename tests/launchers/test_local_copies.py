"""Copies of an environment on a host's own disk; the place is a folder of this machine."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from living_processes import has_ended
from steptime.launchers.hosts import host_agent
from steptime.launchers.hosts.local_copies import LocalCopyError, local_copy, moved


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a folder with a program, a link, and the marker of a complete environment."""
    folder = tmp_path / "cache" / "numpy-0123456789ab"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "program").write_text("#!/bin/sh\n")
    (folder / "bin" / "program").chmod(0o700)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "ready.json").write_text('{"created_at": "today"}')
    return folder


def test_a_copy_has_the_files_modes_and_links_of_the_environment(environment: Path, tmp_path: Path) -> None:
    copy = local_copy(str(environment), str(tmp_path / "disk"))

    assert (Path(copy) / "bin" / "python").readlink() == Path(sys.executable)
    assert (Path(copy) / "bin" / "program").stat().st_mode & 0o777 == 0o700
    assert (Path(copy) / "ready.json").read_text() == (environment / "ready.json").read_text()


def test_a_copy_is_made_once(environment: Path, tmp_path: Path) -> None:
    copy = local_copy(str(environment), str(tmp_path / "disk"))
    (Path(copy) / "left").touch()

    assert local_copy(str(environment), str(tmp_path / "disk")) == copy
    assert (Path(copy) / "left").exists()


def test_a_copy_of_an_environment_that_was_made_anew_is_made_anew(environment: Path, tmp_path: Path) -> None:
    copy = local_copy(str(environment), str(tmp_path / "disk"))
    (Path(copy) / "left").touch()
    (environment / "ready.json").write_text('{"created_at": "tomorrow"}')

    assert local_copy(str(environment), str(tmp_path / "disk")) == copy
    assert not (Path(copy) / "left").exists()


def test_what_an_interrupted_copy_left_is_replaced(environment: Path, tmp_path: Path) -> None:
    own = tmp_path / "disk" / f"steptime-{os.getuid()}"
    own.mkdir(parents=True, mode=0o700)
    (own / f"{environment.name}.partial" / "half").mkdir(parents=True)

    copy = local_copy(str(environment), str(tmp_path / "disk"))

    assert sorted(each.name for each in Path(copy).iterdir()) == ["bin", "ready.json"]
    assert not (own / f"{environment.name}.partial").exists()


def test_a_place_into_which_others_may_have_put_programs_is_refused(environment: Path, tmp_path: Path) -> None:
    own = tmp_path / "disk" / f"steptime-{os.getuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)

    with pytest.raises(LocalCopyError, match="only this user"):
        local_copy(str(environment), str(tmp_path / "disk"))


def test_a_link_in_the_place_of_the_copies_is_refused(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / f"steptime-{os.getuid()}").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(LocalCopyError, match="only this user"):
        local_copy(str(environment), str(tmp_path / "disk"))


def test_a_place_may_name_a_variable_of_the_host(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_DISK", str(tmp_path / "disk"))

    copy = local_copy(str(environment), "$OWN_DISK/copies")

    assert copy.startswith(str(tmp_path / "disk" / "copies"))


def test_a_variable_that_the_host_lacks_is_named(environment: Path) -> None:
    with pytest.raises(LocalCopyError, match="NO_SUCH_DISK"):
        local_copy(str(environment), "$NO_SUCH_DISK")


def test_an_environment_that_is_gone_is_said_and_leaves_nothing(environment: Path, tmp_path: Path) -> None:
    gone = environment.with_name("gone-0123456789ab")

    with pytest.raises(LocalCopyError, match="No such file"):
        local_copy(str(gone), str(tmp_path / "disk"))

    own = tmp_path / "disk" / f"steptime-{os.getuid()}"
    assert [each.name for each in own.iterdir()] == [f"{gone.name}.lock"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/cache/a-1", "/disk/a-1"),
        ("/cache/a-1/bin/python", "/disk/a-1/bin/python"),
        ("/usr/lib:/cache/a-1/lib", "/usr/lib:/disk/a-1/lib"),
        ("/cache/a-12/bin/python", "/cache/a-12/bin/python"),
        ("start.py", "start.py"),
    ],
)
def test_only_paths_within_the_environment_are_moved(text: str, expected: str) -> None:
    assert moved(text, "/cache/a-1", "/disk/a-1") == expected


def programs_with_cp(folder: Path, text: str) -> Path:
    """Return a folder with a ``cp`` of the given shell script, which is called as ``cp -a -- SOURCE PARTIAL``."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "cp").write_text(f"#!/bin/sh\n{text}\n")
    (programs / "cp").chmod(0o700)
    return programs


def number_in(file: Path, limit_s: float = 30.0) -> int:
    """Return the process number that a script writes into a file, once it is there."""
    deadline = time.monotonic() + limit_s
    while not (file.exists() and file.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(file.read_text())


class HostAgentWithSlowDisk:
    """A host agent whose ``cp`` takes some seconds longer than the true one, and dies of a second of silence."""

    def __init__(self, environment: Path, folder: Path, seconds: float = 0.0, cp: str | None = None) -> None:
        programs = programs_with_cp(folder, cp or f'sleep {seconds}\nexec /bin/cp "$@"')
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", host_agent.__file__, "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )
        stripped = {"passed": [], "names": [], "prefixes": []}
        self.send(plan={"hosts": ["this"], "folder": str(folder), "silence_s": 1.0, "stripped": stripped})
        self.send(copy={"environment": str(environment), "place": str(folder / "disk")})

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n" if message else b"\n")
        self.process.stdin.flush()


def test_a_host_agent_listens_while_it_copies(environment: Path, tmp_path: Path) -> None:
    slow = HostAgentWithSlowDisk(environment, tmp_path, seconds=3.0)
    assert slow.process.stdout
    said: list[dict[str, Any]] = []
    beats = threading.Event()

    def beat() -> None:
        while not beats.wait(0.2):
            slow.send()

    thread = threading.Thread(target=beat)
    thread.start()
    while not any("copied" in each for each in said) and (line := slow.process.stdout.readline()):
        said.append(json.loads(line))
    beats.set()
    thread.join()
    slow.process.communicate(timeout=10.0)

    assert said[-1].get("copied") == str(tmp_path / "disk" / f"steptime-{os.getuid()}" / environment.name)
    assert len(said) > 3  # its first word, and heartbeats


def test_a_host_agent_whose_line_is_closed_does_not_wait_for_its_copy(environment: Path, tmp_path: Path) -> None:
    slow = HostAgentWithSlowDisk(environment, tmp_path, seconds=600.0)
    assert slow.process.stdout
    slow.process.stdout.readline()
    time.sleep(0.5)
    slow.process.communicate(timeout=10.0)

    assert slow.process.returncode == 0
    assert not (tmp_path / "disk" / f"steptime-{os.getuid()}" / environment.name).exists()


def test_a_copy_ends_with_a_host_agent_that_is_killed(environment: Path, tmp_path: Path) -> None:
    slow = HostAgentWithSlowDisk(environment, tmp_path, cp=f"echo $$ >{tmp_path}/pid\nexec sleep 600")
    copying = number_in(tmp_path / "pid")
    slow.process.kill()
    slow.process.communicate()

    assert has_ended(copying)


def test_a_copy_waits_for_what_a_killed_host_agent_has_left_of_the_same_one(environment: Path, tmp_path: Path) -> None:
    left = f'(echo >>{tmp_path}/begun; sleep 3; touch {tmp_path}/over; mkdir "$4"; touch "$4/late") &\nwait'
    slow = HostAgentWithSlowDisk(environment, tmp_path, cp=left)
    deadline = time.monotonic() + 30.0
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    slow.process.kill()
    slow.process.communicate()

    copy = local_copy(str(environment), str(tmp_path / "disk"))

    assert (tmp_path / "over").exists()
    assert sorted(each.name for each in Path(copy).iterdir()) == ["bin", "ready.json"]


def test_a_copy_that_a_host_agent_ended_and_awaited_is_not_taken_for_a_whole_one(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = f'mkdir "$4"; /bin/cp "$3/ready.json" "$4"; sleep 2 & echo $$ >{tmp_path}/pid; exec sleep 600'
    programs = programs_with_cp(tmp_path, half)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def end_and_await() -> None:
        copying = number_in(tmp_path / "pid")
        os.kill(copying, signal.SIGTERM)
        os.waitpid(copying, 0)  # before the copying thread does: another sleep still holds the pipe that it reads

    ending = threading.Thread(target=end_and_await)
    ending.start()
    with pytest.raises(LocalCopyError, match="it was ended"):
        local_copy(str(environment), str(tmp_path / "disk"))
    ending.join()

    assert not (tmp_path / "disk" / f"steptime-{os.getuid()}" / environment.name).exists()


def test_a_host_agent_starts_without_site_packages_and_quickly() -> None:
    program = [sys.executable, "-I", "-S", host_agent.__file__, "0"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120.0)

    assert (done.returncode, done.stderr) == (0, b"")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0
