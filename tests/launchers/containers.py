"""Containers of bubblewrap: real ones, of namespaces that show the whole of this machine."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from system_packages import missing

WHOLE = ("bwrap", "--dev-bind", "/", "/")
"""A container in which everything is where it is outside, with mounts of its own."""
CONTAINER = (*WHOLE, "--")
_SCRATCH = "/dev/shm"  # noqa: S108 - the container's own
TIED = (*WHOLE, "--die-with-parent", "--unshare-pid", "--")
"""One whose processes have numbers of their own besides, and end when the container's command does."""


@cache
def missing_bubblewrap() -> str | None:
    """Why no container can be made here; None if one can."""
    if reason := missing("containers"):
        return reason
    done = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    return f"bubblewrap makes no container here: {done.stderr.strip()}" if done.returncode else None


def container(host: str, variables: Mapping[str, str], volumes: Sequence[str]) -> list[str]:
    """Return the beginning of a command in a container: read-only but for its volumes, with these variables alone.

    A volume is written as Docker's: PATH:PATH-INSIDE or PATH:PATH-INSIDE:ro.
    """
    words = ["bwrap", "--die-with-parent", "--unshare-uts", "--hostname", host, "--clearenv"]
    for path in Path("/").iterdir():
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.name != "dev":
            words += ["--ro-bind", str(path), str(path)]
    words += ["--dev-bind", "/dev", "/dev", "--tmpfs", _SCRATCH]
    for name, value in {"TMPDIR": _SCRATCH, **variables}.items():
        words += ["--setenv", name, value]
    for volume in volumes:
        outside, inside, *only = volume.split(":")
        words += ["--ro-bind" if only == ["ro"] else "--bind", outside, inside]
    return [*words, "--"]


def run_as_docker(words: Sequence[str]) -> None:
    """Become the command of ``docker run``, of which options and image are read: the image is this machine."""
    options: dict[str, list[str]] = {"--env": [], "--volume": []}
    at = words.index("run") + 1
    while words[at].startswith("-"):
        if words[at] in options:
            options[words[at]].append(words[at + 1])
            at += 1
        at += 1
    variables = dict(value.split("=", 1) for value in options["--env"])
    command = [*container("container", {"PATH": os.defpath, **variables}, options["--volume"]), *words[at + 1 :]]
    os.execvp(command[0], command)  # noqa: S606 - as Docker does
