"""What the launcher needs of this machine."""

import os
import shutil
import sys
from functools import cache

from steptime.launchers.emulation.owner import new_owner
from steptime.launchers.emulation.tools import attempt


def lacking() -> str | None:
    """Say in a sentence why no cluster can be emulated here; None where one can."""
    if not sys.platform.startswith("linux"):
        return "the launcher 'emulated' needs Linux, whose namespaces it makes hosts of"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if absent:
        return (
            f"the launcher 'emulated' needs the command {absent[0]!r}, which is not on PATH; "
            "install iproute2 (Debian: apt install iproute2)"
        )
    if os.geteuid() != 0:
        return (
            "the launcher 'emulated' makes network namespaces and control groups, which needs root; "
            "run steptime as root, in a container if you like"
        )
    if not _namespaces_work():
        return "this kernel or container lets nobody make network namespaces ('ip netns add' fails)"
    return None


@cache
def _namespaces_work() -> bool:
    name = new_owner().name("probe")
    return attempt("ip", "netns", "add", name) and attempt("ip", "netns", "delete", name)


@cache
def kernel_delays() -> bool:
    """Whether the kernel can delay packets by ``netem``."""
    name = new_owner().name("probe")
    if not attempt("ip", "netns", "add", name):
        return False
    try:
        return attempt("tc", "-n", name, "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms")
    finally:
        attempt("ip", "netns", "delete", name)
