"""The fingerprint of an interpreter as JSON: a program that runs in every environment, so in Python 3.6 too."""

import importlib
import json
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
    sys.stdout.write(json.dumps(fingerprint()) + "\n")
