"""The nodes of a Ray cluster that can run programs, asked by a driver in a process of its own (``ray_line``)."""

import json
import subprocess

from steptime.errors import LaunchError
from steptime.extras import why_absent
from steptime.launchers.hosts.commands import RAY_LINE

_ANSWER_S = 90.0
"""A driver takes seconds to start, and tens of them where a cluster does not answer."""


def ray_nodes(address: str) -> tuple[str, dict[str, str]]:
    """Return the address of a Ray cluster, and of its living nodes the names, by their addresses in it.

    Args:
        address: of the cluster, ``HOST:PORT``; ``auto`` for $RAY_ADDRESS, else the one that this host belongs to.

    Raises LaunchError where Ray is not installed, has another version, or reaches no cluster.
    """
    if reason := why_absent("ray"):
        raise LaunchError(reason)
    try:
        done = subprocess.run(
            [*RAY_LINE, "nodes", address],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
        )
    except subprocess.TimeoutExpired as error:
        message = f"the Ray cluster at {address} did not answer within {_ANSWER_S:g} s; see `ray status` there"
        raise LaunchError(message) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        message = lines[-1] if lines else f"Ray's driver ended with exit code {done.returncode}"
        raise LaunchError(message)
    found = json.loads(done.stdout)
    return found["cluster"], {node["address"]: node["name"] for node in found["nodes"]}
