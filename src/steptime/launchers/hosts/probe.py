"""The probe of a site: what each of its hosts has, asked before anything is launched, and what does not fit.

What does not fit of the hosts of a site: the sentences by which they are refused before anything is launched.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptime.catalog.cluster_findings import PathFindings
from steptime.catalog.found_site import FoundGpu, FoundHost, NeededPaths, Site
from steptime.errors import LaunchError
from steptime.launchers.emulation.verification import measure_paths, message_bytes
from steptime.launchers.hosts.commands import reach_commands, single_command, variables_of_line
from steptime.launchers.hosts.connections import Lines
from steptime.launchers.hosts.ray_cluster import ray_nodes
from steptime.launchers.process_env import foreign_variables
from steptime.plain_file import PlainFolder

SHOWN_S = 90.0
"""After so long a new file must show on every host: NFS may remember for a minute that a file was not there."""


def misfits(
    site: Site,
    needed: NeededPaths,
    facts: Sequence[dict[str, Any]],
    ends: Sequence[dict[str, Any]],
    looks: Sequence[dict[str, Any]],
) -> list[str]:
    """Return why hosts cannot be used, a sentence each.

    Args:
        site: the hosts' names, and what the study wants.
        needed: what they must have at the same paths.
        facts: what each host agent reports of its host.
        ends: the interface and the address of each.
        looks: what each sees of the shared files.
    """
    found = []
    seen: dict[tuple[str, str], str] = {}
    for name, fact, end, look in zip(site.names, facts, ends, looks, strict=True):
        same = (fact["boot"], fact["name"])
        if same in seen:
            found.append(same_host(name, seen[same]))
        seen[same] = name
        if end["address"] is None or end["interface"] is None:
            found.append(_no_interface(site, name, fact))
        found += _unseen(name, needed, look)
        if site.gpus_per_host is not None and len(fact["gpus"]) < site.gpus_per_host:
            found.append(_too_few_gpus(site, name, fact))
    return found


def same_host(name: str, other: str) -> str:
    """Return the sentence that refuses a host which is named twice."""
    return f"{name} is the same host as {other}; name each host once, and set hosts.workers_per_host"


def _no_interface(site: Site, name: str, fact: dict[str, Any]) -> str:
    addresses = fact["interfaces"]
    known = ", ".join(f"{key} {' and '.join(values)}" for key, values in addresses.items())
    if fact["has_ipv6"] and not set(addresses) - {"lo"}:
        return (
            f"{name} has IPv6 addresses and no IPv4 address but {known or 'none'}; launches use IPv4 alone: give its "
            "interface an IPv4 address"
        )
    wanted = f"no interface {site.interface!r}" if site.interface else "no interface that leads to the first host"
    return f"{name} has {wanted} with an IPv4 address (it has {known}); set hosts.interface"


def _unseen(name: str, needed: NeededPaths, look: dict[str, Any]) -> Iterator[str]:
    if look["seen_s"] is None:
        yield (
            f"{name} does not see the results folder within {SHOWN_S:g} s; all hosts must share it at the same path: "
            "choose one on a shared file system with -o"
        )
        return
    if look["import_s"] is None:
        yield f"{name} cannot import numpy with {sys.executable}, which all hosts must share"
    if not look["cache_seen"]:
        yield (
            f"{name} does not share the cache {needed.cache}, where environments and datasets are; set STEPTIME_CACHE "
            "to a folder of a shared file system"
        )
    for folder in look["no_folders"]:
        yield f"{name} cannot read the dataset folder {folder}; all hosts must have it at the same path: copy it there"
    for program in look["no_programs"]:
        yield (
            f"{name} cannot start the interpreter {program}, which the study names; all hosts must have it at the same "
            "path: install it there, or name another one under environments"
        )


def _too_few_gpus(site: Site, name: str, fact: dict[str, Any]) -> str:
    visible = fact["gpus_visible"]
    hidden = f" with CUDA_VISIBLE_DEVICES={visible} there" if visible is not None else ""
    divided = f" ({fact['gpus_left_out']})" if fact["gpus_left_out"] else ""
    return (
        f"{name} has {len(fact['gpus'])} GPUs{hidden}{divided}, not the {site.gpus_per_host} that the study counts "
        "with; set hosts.gpus_per_host"
    )


_READY_S = 90.0
_ANSWER_S = 20.0
"""So long a host has to start a program that does nothing."""
_LOOK_S = 300.0
"""So long a host may take to see a file and to start an interpreter; it sends heartbeats meanwhile."""
_LOST_S = 20.0
"""After so long without a word, behind its first one, it is dead; srun itself goes on for as long as another works."""
_EXCHANGES = 5
NOTHING_MORE = NeededPaths()


def probed(site: Site, folder: Path, needed: NeededPaths = NOTHING_MORE) -> Site:
    """Return ``site`` with what was found on its hosts and between them.

    Args:
        site: its hosts' names and what the study wants.
        folder: a folder that all hosts must share.
        needed: what else they must have at the same paths.

    Raises LaunchError that names every host that cannot be used, and why.
    """
    _refuse([same_host(name, name) for name, count in Counter(site.names).items() if count > 1])
    around = PlainFolder(folder.parent)
    around.make(folder, mode=0o700)
    for old in folder.glob("*.launch"):
        around.remove(old)
    nonce = folder / f"probe-{secrets.token_hex(8)}"
    mark: Path | None = None
    names = site.names
    try:
        with Lines(reach_commands(site.hosts, site.reach), names, folder) as lines:
            plan = {"hosts": names, "folder": str(folder.absolute()), "silence_s": _LOOK_S, "probe": True}
            lines.send(plan={**plan, "stripped": foreign_variables()})
            facts = _gathered(lines, "ready", _READY_S, _READY_S)
            around.put(nonce, nonce.name.encode())
            mark = _marked(needed.cache, nonce.name)
            ends = _addresses(lines, site, facts)
            clocks = _clock_offsets(lines, len(names))
            lines.send(
                look={
                    "file": str(nonce.absolute()),
                    "text": nonce.name,
                    "interpreter": sys.executable,
                    "cache": needed.cache,
                    "cache_file": str(mark) if mark else None,
                    "folders": list(needed.datasets),
                    "programs": list(needed.interpreters),
                    "limit_s": SHOWN_S,
                }
            )
            looks = _gathered(lines, "look", _LOOK_S)
            lines.send(end=True)
            for host in lines.gather("left", _READY_S, silence_s=_LOST_S):
                lines.has_left(host)
    finally:
        around.remove(nonce)
        if mark:
            mark.unlink(missing_ok=True)
    _refuse(misfits(site, needed, facts, ends, looks))
    hosts = tuple(
        FoundHost(
            name=name,
            address=ends[index]["address"],
            interface=ends[index]["interface"],
            cores=tuple(facts[index]["cores"]),
            memory_bytes=facts[index]["memory_bytes"],
            cpu=facts[index]["cpu"],
            gpus=tuple(FoundGpu(**{**gpu, "cores": tuple(gpu["cores"])}) for gpu in facts[index]["gpus"]),
            gpu_driver=facts[index]["gpu_driver"],
            own_name=facts[index]["name"],
            boot=facts[index]["boot"],
            ended=facts[index]["left"],
            clock_offset_s=clocks[index],
            shown_s=looks[index]["seen_s"],
            import_s=looks[index]["import_s"],
            mpiexec=facts[index]["mpiexec"]["path"],
            is_open_mpi=facts[index]["mpiexec"]["is_open_mpi"],
            ray_address=site.hosts[index].ray_address,
            niceness=facts[index]["niceness"],
        )
        for index, name in enumerate(names)
    )
    gpus = min(len(host.gpus) for host in hosts) if site.gpus_per_host is None else site.gpus_per_host
    return replace(site, hosts=hosts, gpus_per_host=gpus, paths=tuple(_paths(site, hosts)))


def _marked(cache: str | None, name: str) -> Path | None:
    """Write a file into the cache, by which hosts show that they share it; None of a cache that cannot be written."""
    if cache is None:
        return None
    mark = Path(cache) / name
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(name)
    except OSError:
        return None
    return mark


def answering(site: Site) -> list[str]:
    """Return the names of the hosts that start a program now; each is asked by itself.

    A launch cannot tell: where one node dies, srun forwards nothing of the others either. A Ray cluster is asked once.
    """
    if site.reach == "ray":
        try:
            living = ray_nodes(site.hosts[0].ray_address)[1]
        except LaunchError:
            return []
        return [name for name in site.names if name in living]
    deadline = time.monotonic() + _ANSWER_S
    commands = {host.name: single_command(host, site.reach, ["true"]) for host in site.hosts}
    asked = {
        name: subprocess.Popen(
            command,
            env=variables_of_line(command, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, command in commands.items()
    }
    try:
        for process in asked.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        return [name for name, process in asked.items() if process.poll() == 0]
    finally:
        for process in asked.values():
            process.kill()
            process.wait()


def _gathered(lines: Lines, kind: str, limit_s: float, silence_s: float = _LOST_S) -> list[dict[str, Any]]:
    found = lines.gather(kind, limit_s, silence_s=silence_s)
    return [found[host][kind] for host in range(len(lines.hosts))]


def _addresses(lines: Lines, site: Site, facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the interface and the address of each host: those that lead to the first host, or the study's."""
    count = len(lines.hosts)
    if count == 1:
        known = facts[0]["interfaces"]
        if site.interface:
            return [{"interface": site.interface, "address": next(iter(known.get(site.interface, [])), None)}]
        return [{"interface": "lo", "address": "127.0.0.1"}]
    targets = [_reached_at(facts, 0)] * count
    targets[0] = _reached_at(facts, 1)
    for host, target in enumerate(targets):
        lines.send(**{"for": host, "towards": target, "interface": site.interface})
    return _gathered(lines, "towards", _READY_S)


def _reached_at(facts: Sequence[dict[str, Any]], host: int) -> str:
    """Return an address of a host: what its name means on another one, or else where its ssh reached it."""
    other = facts[1 if host == 0 else 0]
    found: str = other["addresses"][host] or facts[host]["reached_at"] or ""
    return found


def _clock_offsets(lines: Lines, count: int) -> list[float]:
    """Return each host's wall clock minus this one's, by the quickest of a few exchanges (Cristian's method).

    Raises LaunchError that names who has fallen silent.
    """
    best = [(float("inf"), 0.0)] * count
    for exchange in range(_EXCHANGES):
        sent = time.time()
        lines.send(clock=exchange)
        waiting = set(range(count))
        deadline = time.monotonic() + _READY_S
        while waiting and time.monotonic() < deadline:
            message = lines.receive()
            if message and message.get("clock") == exchange:
                back = time.time()
                host = message["host"]
                waiting.discard(host)
                best[host] = min(best[host], (back - sent, message["wall_s"] - (sent + back) / 2))
            elif message is None and (failure := lines.failure(_LOST_S)):
                raise LaunchError(failure)
    return [offset for _, offset in best]


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        raise LaunchError("; ".join(reasons))


def _paths(site: Site, hosts: Sequence[FoundHost]) -> list[PathFindings]:
    """Measure what a message takes from the first host to each other one."""
    command: Callable[[int, Sequence[str]], list[str]] = lambda host, program: single_command(  # noqa: E731
        hosts[host], site.reach, [sys.executable, "-I", "-S", *program], reads=True
    )
    return measure_paths(
        [host.address for host in hosts], message_bytes(None, 0), command, variables_of_line(command(0, []), os.environ)
    )
