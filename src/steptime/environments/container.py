"""Interpreters in containers: the container is a command that starts a program in it, as ``apptainer exec IMAGE``.

An interpreter in a container is believed only after it has run there. What a launch needs of the container besides is
asked at the same time: steptime's files at their paths, environment variables, and the network of whoever starts it.
"""

import secrets
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptime.environments.fingerprint import surroundings
from steptime.environments.subprocesses import FINGERPRINT, answer_in, ask
from steptime.errors import EnvironmentFailure

_LIMIT_S = 600.0
"""The first start of a container may unpack its image."""
_ANYWHERE = Path("/")
"""The folder in which a container is asked: a launch has another one, in which relative paths would mean others."""


def container_fingerprint(name: str, container: Sequence[str], interpreter: Path) -> dict[str, Any]:
    """Return what an interpreter in a container reports of itself, as ``fingerprint_of`` does for others.

    Args:
        name: of the framework.
        container: the words of the command that starts a program in the container.
        interpreter: a path in the container, or a command that it finds.

    Raises EnvironmentFailure with what is missing and what would help.
    """
    here = f"environments.{name}.container"
    if shutil.which(container[0]) is None:
        message = (
            f"{here}: there is no program {container[0]!r} on this machine's PATH to start {interpreter} in a "
            "container; install it on every host, load its module before steptime starts (steptime submit "
            "--setup 'module load …'), or write its whole path"
        )
        raise EnvironmentFailure(message)
    mark = secrets.token_hex(8)
    command = [*container, str(interpreter), "-I", str(FINGERPRINT), "--container"]
    code, said = ask(command, _LIMIT_S, _ANYWHERE, STEPTIME_MARK=mark)
    answer = answer_in(said)
    tried = f"\ntried: {shlex.join(command)}"
    if code and f"can't open file '{FINGERPRINT}'" in said:
        message = (
            f"{here}: the container does not have steptime's files at {FINGERPRINT.parents[1]}; it must see "
            "steptime's installation, the datasets and the results folder at the paths that they have outside "
            f"(apptainer: --bind PATH; bwrap: --bind PATH PATH){tried}"
        )
        raise EnvironmentFailure(message)
    if code or answer is None:
        lines = "".join(f"\n  | {line}" for line in said.splitlines()[-12:])
        message = f"{here}: {interpreter} does not work in the container (exit code {code}):{lines}{tried}"
        raise EnvironmentFailure(message)
    if answer.get("mark") != mark:
        message = (
            f"{here}: the container keeps environment variables from its programs, and workers learn from them which "
            "they are; let it pass them on (apptainer: without --cleanenv and --containall; bwrap: without "
            f"--clearenv; podman: --env-host){tried}"
        )
        raise EnvironmentFailure(message)
    if answer.get("network") not in (None, surroundings()["network"]):
        message = (
            f"{here}: the container has a network of its own, in which workers do not find each other; let it share "
            "that of whoever starts it (apptainer: without --net; bwrap: without --unshare-net and --unshare-all; "
            f"podman: --network=host){tried}"
        )
        raise EnvironmentFailure(message)
    return answer
