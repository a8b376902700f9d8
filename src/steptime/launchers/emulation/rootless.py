"""Emulated hosts without root: the launch runs in a process of its own, which is root of a user namespace.

There are no control groups then, so that no host can be slowed and others' work is not kept away; the findings say so.

Every host has a user namespace as well. By it, libraries that look for processes on the same machine tell hosts apart:
torch's remote procedure calls, for one, read the memory of a process on the same machine directly, whatever network it
is in, unless its user namespace differs. All users are mapped to themselves, so that the owners of files stay the same.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from steptime.catalog.cluster_findings import ClusterFindings, HostFindings, PathFindings
from steptime.errors import LaunchError
from steptime.launchers.emulation.network import attempt
from steptime.launchers.namespaces import make_users, path_of
from steptime.launchers.request import LaunchOutcome, Request

_PROGRAM = "steptime.launchers.unprivileged"
_BELOW = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--uts")
_POLL_S = 0.1
_REQUEST = TypeAdapter(Request)


@cache
def user_namespaces_work() -> bool:
    """Whether this user may make hosts within a user namespace."""
    probe = "mount -t tmpfs none /run && mkdir /run/netns && ip netns add probe"
    return attempt(*_BELOW, "sh", "-c", probe)


def run_below(request: Request) -> LaunchOutcome:
    """Run a launch in a user namespace; raises LaunchError as the launcher does."""
    with subprocess.Popen(
        [*_BELOW, sys.executable, "-P", "-m", _PROGRAM],  # -P: never a steptime/ of the current folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said = _answer(process, request)
        except BaseException:
            _interrupt(process)
            raise
    try:
        answer = json.loads(said)
    except ValueError:
        message = f"the emulated hosts' own process ended without an answer (exit code {process.returncode})"
        raise LaunchError(message) from None
    if "refused" in answer:
        raise LaunchError(answer["refused"])
    return LaunchOutcome(**{**answer, "cluster": _findings(answer["cluster"])})


def _answer(process: subprocess.Popen[str], request: Request) -> str:
    asked: str | None = request_to_text(request)
    while True:
        try:
            said, _ = process.communicate(asked, timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            asked = None  # it has been sent
            if request.cancelled.is_set():
                _interrupt(process)
        else:
            return said


def _interrupt(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


def request_to_text(request: Request) -> str:
    """Return what the process must know of a request, as one line of JSON."""
    sent = replace(request, folder=request.folder.absolute())
    return _REQUEST.dump_json(sent, exclude={"cancelled", "site"}).decode() + "\n"


def request_from_text(text: str, cancelled: threading.Event) -> Request:
    """Return the request that ``request_to_text`` wrote; ``cancelled`` ends it early."""
    return replace(_REQUEST.validate_json(text), cancelled=cancelled)


def outcome_to_text(outcome: LaunchOutcome) -> str:
    """Return an outcome as JSON."""
    return json.dumps(asdict(outcome))


def _findings(fields: dict[str, Any] | None) -> ClusterFindings | None:
    if fields is None:
        return None
    hosts = [HostFindings(**each) for each in fields["hosts"]]
    paths = [PathFindings(**each) for each in fields["paths"]]
    return ClusterFindings(**{**fields, "hosts": hosts, "paths": paths})


@contextlib.contextmanager
def made_users(count: int) -> Iterator[list[Path] | None]:
    """Make ``count`` user namespaces and yield what opens them; None if the kernel refuses to make any.

    They exist as long as this process holds them, so that nothing is left when it is killed.
    """
    held: list[int] = []
    maps = [_same(Path("/proc/self", name).read_text()) for name in ("uid_map", "gid_map")]
    try:
        with contextlib.suppress(OSError):
            for _ in range(count):
                held += make_users(*maps)
        yield [path_of(descriptor) for descriptor in held] if len(held) == count else None
    finally:
        for descriptor in held:
            os.close(descriptor)


def _same(own_map: str) -> str:
    """Return the map that gives everybody whom this process knows the number that this process knows."""
    ranges = (line.split() for line in own_map.splitlines())
    return "".join(f"{first} {first} {count}\n" for first, _, count in ranges)
