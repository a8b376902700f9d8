"""Running ``ip`` and ``tc``, which know more of the kernel than Python does."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from steptime.errors import LaunchError

_LIMIT_S = 60.0


def batch(tool: str, lines: Sequence[str], namespace: str | None = None) -> None:
    """Run many commands of ``ip`` or ``tc`` in one process, within a namespace if one is named.

    Raises LaunchError with what the tool said and the command that it said it about.
    """
    where = ["-n", namespace] if namespace else []
    done = _run([tool, *where, "-batch", "-"], "".join(f"{line}\n" for line in lines))
    if done.returncode:
        said = " ".join(done.stderr.split())
        message = f"{tool} could not make the emulated cluster: {said}; it was told: {'; '.join(lines)}"
        raise LaunchError(message)


def ask(tool: str, *arguments: str, namespace: str) -> list[dict[str, Any]]:
    """Return what ``ip`` or ``tc`` shows of a namespace; raises LaunchError when it shows nothing."""
    # With details, tc rounds the burst and adds words to it; without them, ip does not say gso_max_size.
    flags = ["-j", "-s", "-d"] if tool == "ip" else ["-j"]
    done = _run([tool, "-n", namespace, *flags, *arguments], "")
    if done.returncode:
        message = f"{tool} {' '.join(arguments)} of {namespace} failed: {' '.join(done.stderr.split())}"
        raise LaunchError(message)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


def attempt(*command: str) -> bool:
    """Run a command whose failure is an answer; return whether it did not fail."""
    return _run(list(command), "").returncode == 0


def _run(command: list[str], given: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{command[0]} could not be run: {error}"
        raise LaunchError(message) from error
