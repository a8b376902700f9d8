"""``python host_launch.py FOLDER LAUNCHER REACH HOSTS [KEY=VALUE]…``: one launch on hosts, run on a node of a bed.

FOLDER holds ``start.py``. ``workers``, ``servers``, ``time_limit_s``, ``cancel_after_s``, ``interpreter``,
``container`` (words as of a shell), ``probe`` (0 to do without), ``environment``, ``local_folder``, ``cache``,
``datasets``, ``interpreters``, ``workers_per_host`` and ``variables`` (JSON) can be set. The outcome is printed as
JSON.
"""

import json
import os
import shlex
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from steptime.catalog.cluster import cluster_for
from steptime.catalog.found_site import FoundHost, NeededPaths, Site
from steptime.errors import LaunchError
from steptime.launchers.hosts.probe import probed
from steptime.launchers.request import Request
from steptime.launchers.table import launcher_named


def main() -> None:
    """Probe the hosts, run the launch, print what became of it."""
    folder, launcher, reach, hosts = Path(sys.argv[1]), *sys.argv[2:5]
    given = dict(each.split("=", 1) for each in sys.argv[5:])
    named = hosts.split(",")
    addresses = [name if name[0].isdigit() else f"10.88.0.{int(name[1:]) + 1}" for name in named]
    known = [FoundHost(name, address, "eth0", (0, 1)) for name, address in zip(named, addresses, strict=True)]
    wants = {name: given.get(name) for name in ("interface", "local_folder")}
    site = Site(tuple(known), reach, f"Slurm job {os.environ.get('SLURM_JOB_ID')}", **wants)
    try:
        if given.get("probe") == "1":
            needed = NeededPaths(
                cache=given.get("cache"),
                datasets=tuple(filter(None, given.get("datasets", "").split(","))),
                interpreters=tuple(filter(None, given.get("interpreters", "").split(","))),
            )
            site = probed(site, folder / "probe", needed)
        per_host = int(given.get("workers_per_host", "1"))
        workers = int(given.get("workers", "2"))
        spread = cluster_for(workers=workers, own_servers=0, workers_per_host=per_host, kind="found")
        request = Request(
            folder,
            Path(given.get("interpreter", sys.executable)),
            workers,
            servers=int(given.get("servers", "0")),
            cores=(0, 1),
            container=tuple(shlex.split(given.get("container", ""))),
            environment=Path(given["environment"]) if "environment" in given else None,
            site=site,
            cluster=spread if per_host > 1 else None,
            environment_variables=json.loads(given.get("variables", "{}")),
            time_limit_s=float(given.get("time_limit_s", "60")),
        )
        if "cancel_after_s" in given:
            threading.Timer(float(given["cancel_after_s"]), request.cancelled.set).start()
        outcome = launcher_named(launcher).run(request)
        print(json.dumps({**asdict(outcome), "site": asdict(site)}))  # noqa: T201 - the test reads it
    except LaunchError as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201 - the test reads it


main()
