"""A tied process dies with its parent, and the tie outlives ``exec``."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from living_processes import has_ended
from steptime.worker import tether

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")

TIED_BY_CALL = """
    import sys, time
    sys.path.insert(0, {source!r})
    from steptime.worker.tether import die_with_parent
    die_with_parent()
    print("tied", flush=True)
    time.sleep(60)
"""
PARENT = """
    import subprocess, sys
    child = subprocess.Popen({argv!r}, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
    child.wait()
"""


def parent_of(argv: list[str]) -> tuple[subprocess.Popen[str], int]:
    """Start a process whose child is ``argv``; return it and the child's id once the child has said something."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT.format(argv=argv))], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def survives_its_parent(argv: list[str]) -> bool:
    """Kill the parent of ``argv`` and say whether the child is still there; it is ended in any case."""
    parent, child = parent_of(argv)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    if has_ended(child, 2.0):
        return False
    os.kill(child, signal.SIGKILL)
    return True


def test_a_tied_process_is_killed_with_its_parent():
    source = str(Path(tether.__file__).parents[2])
    assert not survives_its_parent([sys.executable, "-c", textwrap.dedent(TIED_BY_CALL.format(source=source))])


def test_a_program_that_knows_nothing_of_it_is_tied_too():
    program = ["/bin/sh", "-c", "echo started; exec sleep 60"]
    assert not survives_its_parent([sys.executable, tether.__file__, *program])


def test_a_process_that_is_not_tied_would_survive():
    assert survives_its_parent(["/bin/sh", "-c", "echo started; exec sleep 60"])


@pytest.mark.parametrize(("namespace", "survives"), [("1", True), ("0", False), (None, False)])
def test_the_first_process_of_a_container_is_no_dead_parent(monkeypatch, namespace, survives):
    ended: list[int] = []
    own = str(Path("/proc/self/ns/pid").stat().st_ino)
    monkeypatch.setenv("STEPTIME_PARENT", "77")
    monkeypatch.setenv("STEPTIME_RUNNER", f"77:1:{own if namespace is None else namespace}:boot")
    monkeypatch.setattr(tether.os, "getppid", lambda: 1)
    monkeypatch.setattr(tether.os, "kill", lambda pid, _number: ended.append(pid))
    tether.die_with_parent()
    assert bool(ended) is not survives


def test_a_process_whose_parent_died_before_it_was_tied_ends_at_once():
    code = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(tether.__file__).parents[2])!r})
        from steptime.worker.tether import die_with_parent
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.01)
        print("adopted by", os.getppid(), flush=True)
        die_with_parent()
        print("survived", flush=True)
    """
    environment = {**os.environ, "STEPTIME_PARENT": "2"}
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    if "adopted by 1\n" not in said:
        pytest.skip("orphans are not adopted by process 1 here, by which the tether knows them")
    assert "survived" not in said
