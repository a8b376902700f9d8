"""The entry into a host's namespaces, here those of this process, by which an mpiexec is started."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from emulating import skip_where_impossible

from steptime.launchers.namespaces import ENTRY

CPU_S = 0.5
LEAVE_A_DAEMON = """
import os, sys, time
if os.fork():
    sys.exit(3)
os.setsid()
while time.process_time() < float(sys.argv[1]):
    pass
"""


@pytest.fixture(autouse=True)
def _possible() -> None:
    skip_where_impossible()


def entered(folder: Path, *program: str) -> int:
    """Run a program through the entry, as one that leads others, and return its exit code."""
    host = {"group": None, "variables": {}, "users": None, "namespace": "/proc/self/ns/net", "name": None}
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"hosts": [host], "hosts_file": "/etc/hosts"}))
    return subprocess.run([sys.executable, "-I", "-S", ENTRY, plan, "+0", *program], check=False, timeout=60).returncode


def processor_time_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_the_processor_time_of_a_daemon_that_outlives_its_program_is_counted(tmp_path):
    before = processor_time_of_children_s()
    code = entered(tmp_path, sys.executable, "-c", LEAVE_A_DAEMON, str(CPU_S))
    spent = processor_time_of_children_s() - before
    assert code == 3
    assert spent >= 0.9 * CPU_S


def test_the_signal_that_ended_a_program_ends_the_entry(tmp_path):
    assert entered(tmp_path, "sh", "-c", "kill -9 $$") == -9
