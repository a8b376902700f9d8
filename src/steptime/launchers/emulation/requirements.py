"""The requirements of the launcher ``emulated`` on this machine: Linux, iproute2 and the right to make namespaces."""

import shutil
import sys
from functools import cache

from steptime.launchers.emulation.network import attempt
from steptime.launchers.emulation.owner import new_owner
from steptime.launchers.emulation.rootless import user_namespaces_work


def missing_program() -> str | None:
    """Say in a sentence what this machine lacks to emulate a cluster, as far as that is known without starting any."""
    if not sys.platform.startswith("linux"):
        return "the launcher 'emulated' needs Linux, whose namespaces it makes hosts of"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if absent:
        return (
            f"the launcher 'emulated' needs the command {absent[0]!r}, which is not on PATH; "
            "install iproute2 (Debian: apt install iproute2)"
        )
    return None


def missing_requirement() -> str | None:
    """Say in a sentence why no cluster can be emulated here; None if one can."""
    if reason := missing_program():
        return reason
    if not (is_privileged() or user_namespaces_work()):
        return (
            "the launcher 'emulated' makes network namespaces, which needs root or, where the kernel allows them, "
            "user namespaces; run steptime as root, in a container if you like"
        )
    return None


@cache
def is_privileged() -> bool:
    """Whether this process may make network namespaces itself."""
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
