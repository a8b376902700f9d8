"""The bed of nodes that tests of several hosts use leaves nothing on this machine, however the tests end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("hosts", "root")
MAKE = """
    import sys, time
    sys.path.insert(0, sys.argv[1])
    from cluster_bed import ClusterBed
    bed = ClusterBed(1)
    bed.up()
    print(bed.folder, flush=True)
    time.sleep(600)
"""


def namespaces(folder: Path) -> list[Path]:
    return list(Path("/run/netns").glob(f"{folder.name}-*"))


def daemons(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text().replace("\0", " ")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_bed_whose_tests_a_signal_ends_is_removed(number):
    lines = [line[4:] for line in MAKE.splitlines()]
    command = [sys.executable, "-c", "\n".join(lines), str(Path(__file__).parent)]
    maker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    folder = Path(maker.stdout.readline().strip())
    assert namespaces(folder)

    maker.send_signal(number)
    maker.communicate()

    deadline = time.monotonic() + 60
    while (folder.exists() or namespaces(folder) or daemons(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (folder.exists(), namespaces(folder), daemons(folder)) == (False, [], [])
