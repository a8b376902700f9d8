"""What does not fit of the hosts of a site: the sentences by which they are refused before anything is launched."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from steptime.catalog.site import NeededPaths, Site

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
