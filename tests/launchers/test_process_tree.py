"""All processes below one are found, also by a kernel that does not list children."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from steptime.launchers.hosts.process_tree import living_below, living_by_children, living_by_parents

_TREE = """
import subprocess, sys, time
below = '''
import subprocess
found = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
print(*(each.pid for each in found), flush=True)
found[0].wait()
'''
children = [subprocess.Popen([sys.executable, "-c", below], stdout=subprocess.PIPE, text=True) for _ in range(2)]
ended = subprocess.Popen(["true"])
found = [pid for each in children for pid in (each.pid, *each.stdout.readline().split())]
time.sleep(0.3)
print(*found, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("living", [living_below, living_by_children, living_by_parents])
def test_the_living_below_a_process_are_its_children_and_theirs(living):
    top = subprocess.Popen([sys.executable, "-c", _TREE], stdout=subprocess.PIPE, text=True)
    assert top.stdout is not None
    expected = sorted(map(int, top.stdout.readline().split()))
    try:
        assert len(expected) == 6
        assert sorted(living(top.pid)) == expected
    finally:
        for pid in living_by_parents(top.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        top.kill()
        top.communicate()


_END_WITHOUT_LISTS = """
import ctypes, os, subprocess, sys
from steptime.launchers.hosts import process_tree
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
process_tree.living_below = process_tree.living_by_parents
ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {ignores!r}], start_new_session=True)"
below = subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE, text=True)
below.stdout.readline()
print(len(process_tree.living_by_children(os.getpid())))
process_tree.end_below_self()
print(len(process_tree.living_by_children(os.getpid())))
"""


def test_all_below_end_where_the_kernel_lists_no_children():
    """Also one whose parent has ended, and which ignores SIGTERM."""
    done = subprocess.run([sys.executable, "-c", _END_WITHOUT_LISTS], capture_output=True, text=True, check=True)
    first, last = map(int, done.stdout.split())
    assert first >= 1
    assert last == 0
