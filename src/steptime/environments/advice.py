"""How to get a Python of a wanted version on this machine."""

import re
import shutil
from collections.abc import Iterable

from steptime.environments.subprocesses import ask


def how_to_get(version: str, refused: Iterable[str]) -> list[str]:
    """Return commands, any of which gets a Python ``version``, likeliest first.

    Args:
        version: as ``3.9``.
        refused: what was wrong with the Pythons that were found; Debian's without ``venv`` are completed.
    """
    commands = []
    if shutil.which("apt-get"):
        incomplete = any(f"python{version}: it lacks the modules" in refusal for refusal in refused)
        if incomplete or apt_has(f"python{version}"):
            commands.append(f"sudo apt-get install python{version} python{version}-venv")
    commands.append(f"pyenv install {version}")
    if version != "3.6":  # of which uv has none to download
        commands.append(f"uv python install {version}")
    if shutil.which("conda"):
        commands.append(f"conda create -n python{version} python={version}")
    return commands


def apt_has(package: str) -> bool:
    """Whether this machine's apt knows the package and could install it."""
    if not shutil.which("apt-cache"):
        return False
    code, said = ask(["apt-cache", "policy", package], time_limit_s=20.0)
    return code == 0 and re.search(r"Candidate: (?!\(none\))\S", said) is not None
