"""Orphans of killed runners, with real processes, users and PID namespaces."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from emulating import AS_SOMEBODY

from living_processes import wait_until
from steptime.launchers.orphans import end_marked, end_orphans
from steptime.process_identity import ProcessIdentity

SLEEP = ["sleep", "60"]
OWN = ProcessIdentity.own()
DEAD = replace(OWN, started=OWN.started - 1)
"""This process's number in the hand of a process that has ended."""


@contextmanager
def running(runner: object, before: tuple[str, ...] = (), mark: str = "test") -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with the marks of a launch; ``before`` begins its command."""
    marks = {
        b"STEPTIME_RUN": mark.encode(),
        b"STEPTIME_RUNNER": runner if isinstance(runner, bytes) else str(runner).encode(),
    }
    process = subprocess.Popen([*before, *SLEEP], env={**os.environb, **marks})
    try:
        assert wait_until(lambda: b"STEPTIME_RUNNER" in Path(f"/proc/{process.pid}/environ").read_bytes())
        assert wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text().strip() in {"sleep", "unshare"})
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_whose_runner_has_ended_is_ended():
    with running(DEAD) as orphan:
        assert end_orphans() >= 1
        assert orphan.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize(
    "runner",
    [
        OWN,
        replace(DEAD, namespace=OWN.namespace + 1),
        replace(DEAD, boot="another boot"),
    ],
    ids=["lives", "another namespace", "another boot"],
)
def test_a_process_whose_runner_lives_or_cannot_be_seen_is_left_alone(runner):
    with running(runner) as kept:
        end_orphans()
        assert kept.poll() is None


@pytest.mark.parametrize(
    "crafted",
    [
        b"x",
        b"1:2:3",
        b"-1:2:3:boot",
        b"1:2:3:4:boot",
        b"\xff\xfe:1:1:b",
        "²:1:1:b".encode(),
        b"9" * 9999 + b":1:1:b",
    ],
)
def test_a_mark_that_cannot_be_read_is_no_mark(crafted):
    with running(crafted) as kept:
        end_orphans()
        assert kept.poll() is None


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
@pytest.mark.parametrize("runner", [DEAD, b"\xff"], ids=["crafted", "unreadable"])
def test_a_process_of_another_user_is_never_ended_whatever_its_environment_says(runner):
    with running(runner, tuple(AS_SOMEBODY), mark="known to them") as theirs:
        end_orphans()
        end_marked("known to them")
        assert theirs.poll() is None


LAUNCH = """
import sys
from pathlib import Path
from steptime.launchers.table import LocalLauncher
from steptime.launchers.request import Request
outcome = LocalLauncher().run(Request(Path(sys.argv[1]), Path(sys.executable), workers=1, time_limit_s=60.0))
print(outcome.reason)
"""


def test_a_launch_in_another_pid_namespace_survives(tmp_path):
    (tmp_path / "start.py").write_text(
        "import pathlib, time\npathlib.Path('started').touch()\n"
        "while not pathlib.Path('stop').exists(): time.sleep(0.02)\n"
    )
    apart = [
        "unshare",
        *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
        "--pid",
        "--fork",
        "--mount-proc",
    ]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    command = [*apart, sys.executable, "-c", LAUNCH, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
        assert wait_until((tmp_path / "started").exists, 30.0)
        end_orphans()
        (tmp_path / "stop").touch()
        assert runner.communicate(timeout=30)[0] == "None\n"
