"""Containers of bubblewrap: real ones, of namespaces that show the whole of this machine."""

import subprocess
from functools import cache

from system_packages import missing

WHOLE = ("bwrap", "--dev-bind", "/", "/")
"""A container in which everything is where it is outside, with mounts of its own."""
CONTAINER = (*WHOLE, "--")
TIED = (*WHOLE, "--die-with-parent", "--unshare-pid", "--")
"""One whose processes have numbers of their own besides, and end when the container's command does."""


@cache
def missing_bubblewrap() -> str | None:
    """Why no container can be made here; None if one can."""
    if reason := missing("containers"):
        return reason
    done = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    return f"bubblewrap makes no container here: {done.stderr.strip()}" if done.returncode else None
