"""Launches on emulated hosts, whose ``start.py`` is written by each test."""

import sys
import textwrap
from pathlib import Path

import pytest

from steptime.catalog.cluster import Cluster, cluster_for
from steptime.launchers.emulation.control_groups import find_groups, owner_of
from steptime.launchers.emulation.network import NAMESPACES
from steptime.launchers.emulation.verification import missing_requirement
from steptime.launchers.request import LaunchOutcome, Request
from steptime.launchers.table import EmulatedLauncher

SOMEBODY = 65_534
AS_SOMEBODY = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
WRITE_PLACE = """
    import json, os, socket, sys
    sys.path.insert(0, os.getcwd())
    name = os.environ["STEPTIME_ROLE"] + os.environ["STEPTIME_RANK"]
    with open(name + ".json", "w") as file:
        own = {key[9:].lower(): value for key, value in os.environ.items() if key.startswith("STEPTIME_")}
        json.dump({**own, "pid": os.getpid(), "name": socket.gethostname(), "cwd": os.getcwd(),
                   "interfaces": sorted(each[1] for each in socket.if_nameindex()),
                   "peer": socket.gethostbyname("h1"), "cgroup": open("/proc/self/cgroup").read()}, file)
"""


def skip_where_impossible() -> None:
    """Skip the test, with the reason, where no hosts can be made."""
    from system_packages import missing  # noqa: PLC0415 - programs that tests start have no path to it

    if reason := missing("emulation") or missing_requirement():
        pytest.skip(reason)


def request(folder: Path, program: str, **fields: object) -> Request:
    """Return a launch of ``program`` on two hosts."""
    (folder / "start.py").write_text(textwrap.dedent(program))
    settings = {"folder": folder, "interpreter": Path(sys.executable), "workers": 2, "time_limit_s": 60.0}
    return Request(**{**settings, **fields})


def launch(folder: Path, program: str, **fields: object) -> LaunchOutcome:
    """Run it."""
    return EmulatedLauncher().run(request(folder, program, **fields))


def two_hosts(**fields: object) -> Cluster:
    """Two hosts with a worker each."""
    return cluster_for(**{"workers": 2, "own_servers": 0, "bandwidth_bits_per_s": 1e8, **fields})


def remains(pid: int) -> list[Path]:
    """What a process's launches have made and not removed."""
    groups = find_groups()
    places = [NAMESPACES, groups.root] if groups else [NAMESPACES]
    found = [path for place in places for path in place.glob("steptime-*")]
    return [path for path in found if (owner := owner_of(path.name)) and owner.pid == pid]
