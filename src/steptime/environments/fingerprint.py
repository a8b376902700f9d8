"""The fingerprint of an interpreter as JSON: a program that runs in every environment, so in Python 3.6 too.

With ``--container`` it also reports what of the machine around it reaches the container that it runs in.
"""

import importlib
import json
import os
import platform
import re
import sys


def fingerprint() -> "dict[str, object]":
    """Return the version, the path and the platform of this interpreter, and its distributions' versions."""
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platform": platform.platform(),
        "packages": packages(),
    }


def surroundings() -> "dict[str, object]":
    """Return the value of a variable of whoever asks, and the inode number of the network namespace (None: unknown)."""
    try:
        network = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116 - a link that leads to no path
    except OSError:
        network = None
    return {"mark": os.environ.get("STEPTIME_MARK"), "network": network}


def packages() -> "dict[str, str]":
    """Return the version of each installed distribution, by its normalised name (PEP 503)."""
    try:
        metadata = importlib.import_module("importlib.metadata")
        pairs = [(found.metadata["Name"], found.version) for found in metadata.distributions()]
    except ImportError:  # Python 3.6 and 3.7
        pairs = [(found.project_name, found.version) for found in importlib.import_module("pkg_resources").working_set]
    versions: "dict[str, str]" = {}  # noqa: UP037 - Python 3.6 would evaluate it elsewhere; here for one habit
    for name, version in pairs:
        # The first one found is the one that is imported; a damaged distribution has no name.
        if name:
            versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return versions


if __name__ == "__main__":
    found = dict(fingerprint(), **surroundings()) if sys.argv[1:] == ["--container"] else fingerprint()
    sys.stdout.write(json.dumps(found) + "\n")
