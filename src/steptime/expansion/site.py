"""The site of a run: its hosts, named by the user or by the allocation that steptime runs in."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from steptime.catalog.accelerators import Accelerator, Accelerators, find_accelerators, version_of
from steptime.catalog.choices import launchers_with
from steptime.catalog.found_site import FoundHost, Reach, Site, example_site
from steptime.errors import LaunchError, StudyError, UsageError
from steptime.file_name import host_name_mistake
from steptime.launchers.hosts.allocation import HERE_ALONE, LOOKED_FOR, find_allocation, slurm_allocation
from steptime.launchers.hosts.ray_cluster import ray_nodes
from steptime.study.hostfile import unused_slots
from steptime.study.hosts import HostsChoice, SlurmChoice
from steptime.study.study import Study

ON_HOSTS = ("allocation", "ray", "slurm", "ssh")
"""Launchers that always use the hosts of a site."""
_MAY_USE_HOSTS = launchers_with("hosts")
_WHEREVER = set(_MAY_USE_HOSTS).difference(ON_HOSTS)
"""Launchers that use the nodes of an allocation of several, and this host elsewhere."""
_ALLOCATIONS = "an allocation of Slurm (steptime submit), PBS, LSF, Grid Engine, Flux, Cobalt or OAR"


def site_of_study(study: Study, environment: Mapping[str, str] = os.environ) -> Site | None:
    """Return the hosts that a study's launches use; None if they use this host alone.

    Raises StudyError where the study wants hosts and none are named, LaunchError where a scheduler does not answer.
    """
    try:
        return find_site(study.launcher, study.hosts, study.slurm, "the study", environment)
    except UsageError as error:
        message = f"{study.name}: it {error}: write hosts: [n0, n1], or run it in {_ALLOCATIONS}; {HERE_ALONE}"
        raise StudyError([message]) from error


def site_of_messages(
    launcher: str, hosts: HostsChoice | None, environment: Mapping[str, str] = os.environ
) -> Site | None:
    """Return the hosts between which messages are timed; None if this host alone is used, or makes hosts.

    Raises UsageError where hosts are wanted and none are named, LaunchError where a scheduler does not answer.
    """
    try:
        site = find_site(launcher, hosts, None, "the command line", environment)
    except UsageError as error:
        message = f"--launcher {launcher} {error}: name them, as --hosts n0,n1, or use it in {_ALLOCATIONS}"
        raise UsageError([message]) from error
    if site is not None and site.is_example and not (hosts and hosts.names):
        message = (
            f"--launcher {launcher} runs on the nodes of an allocation, and this is none: use it within salloc or "
            "sbatch, or reach hosts by ssh, as --hosts n0,n1"
        )
        raise UsageError([message])
    return site


def find_site(
    launcher: str,
    hosts: HostsChoice | None,
    slurm: SlurmChoice | None,
    source: str,
    environment: Mapping[str, str] = os.environ,
) -> Site | None:
    """Return the hosts of launches; None if they use this host alone.

    In this order: hosts that the user names; the nodes of the Slurm job that steptime runs in; hosts that another
    scheduler names; placeholders where launches wait for an allocation.

    Args:
        launcher: that is asked for.
        hosts: that the user asks for.
        slurm: what the user wants of Slurm.
        source: where the user named the hosts.
        environment: of this process.

    Raises UsageError where hosts are wanted and none are named, LaunchError where a scheduler does not answer.
    """
    if launcher not in _MAY_USE_HOSTS:
        return None
    chosen = hosts or HostsChoice()
    wants_hosts = launcher in ON_HOSTS or hosts is not None or slurm is not None
    if chosen.ray_address is not None and launcher != "ray":
        message = f"hosts.ray_address is {chosen.ray_address} and the launcher {launcher!r}; write launcher: ray"
        raise LaunchError(message)
    if launcher in ("allocation", "ray"):
        return _site_of_ray(chosen) if launcher == "ray" else _allocated_site(chosen, environment)
    if _is_slurm_used(launcher, chosen, environment, wants_hosts=wants_hosts):
        return _site_of_slurm(launcher, chosen, slurm, environment)
    if launcher == "slurm" or (slurm is not None and not chosen.names):
        count = len(chosen.names) or (slurm.nodes if slurm else 1)
        return example_site(count, "slurm", chosen.workers_per_host, _gpus_per_host(chosen, slurm))
    if chosen.names or not wants_hosts:
        return _site(chosen.names, "ssh", source, chosen) if chosen.names else None
    allocation = find_allocation(environment)
    if allocation is None or not allocation.slots:
        message = "runs on hosts, and none are named"
        raise UsageError([message])
    return _site(list(allocation.slots), "ssh", allocation.source, chosen)


def _is_slurm_used(launcher: str, chosen: HostsChoice, environment: Mapping[str, str], *, wants_hosts: bool) -> bool:
    """Whether launches use the nodes of the Slurm job around this process."""
    if "SLURM_JOB_ID" not in environment or launcher == "ssh":
        return False
    several = _nodes_of_slurm(environment) != "1" and launcher in _WHEREVER
    return (wants_hosts or several) and (not chosen.names or launcher == "slurm")


def _allocated_site(chosen: HostsChoice, environment: Mapping[str, str]) -> Site:
    """Return the hosts of the job around this process, each with as many workers as the fewest slots of a host.

    Raises LaunchError outside of a job, and where the study names hosts.
    """
    if chosen.names:
        message = (
            f"the launcher 'allocation' uses the hosts of its job, and {', '.join(chosen.names)} are named; leave them "
            "out, or write launcher: ssh"
        )
        raise LaunchError(message)
    allocation = find_allocation(environment)
    if allocation is None or not allocation.slots:
        message = (
            f"the launcher 'allocation' runs within {_ALLOCATIONS}, or an MPIJob, and this is none of them: none of "
            f"{', '.join(LOOKED_FOR)} is set; name hosts, as launcher=ssh hosts=n0,n1. {HERE_ALONE}"
        )
        raise LaunchError(message)
    slots, unused = allocation.slots, ""
    if "workers_per_host" not in chosen.model_fields_set:
        fewest = min(slots.values())
        chosen = chosen.model_copy(update={"workers_per_host": fewest})
        if fewest < max(slots.values()):
            unused = unused_slots(slots, allocation.source)
    return replace(_site(list(slots), allocation.reach, allocation.source, chosen), unused_slots=unused)


def _site_of_ray(chosen: HostsChoice) -> Site:
    """Return the living nodes of a Ray cluster, or those of them that the study names.

    Raises LaunchError where the cluster cannot be used, or lacks a host that is named.
    """
    address = chosen.ray_address or "auto"
    cluster, nodes = ray_nodes(address)
    known = {name: address for address, own in nodes.items() for name in (own, address)}
    if missing := [name for name in chosen.names if name not in known]:
        have = ", ".join(f"{own} ({address})" for address, own in nodes.items()) or "no node with a processor"
        message = f"{', '.join(missing)}: not in the Ray cluster at {cluster}, which has {have}; see `ray status`"
        raise LaunchError(message)
    names = [known[name] for name in chosen.names] or list(nodes)
    site = _site(names, "ray", f"the Ray cluster at {cluster}", chosen)
    return replace(site, hosts=tuple(replace(host, ray_address=address) for host in site.hosts))


def _nodes_of_slurm(environment: Mapping[str, str]) -> str:
    """Return the number of nodes of a Slurm job, or of groups of a heterogeneous one, whose first may have one node."""
    groups = environment.get("SLURM_HET_SIZE", "1")
    return groups if groups != "1" else environment.get("SLURM_JOB_NUM_NODES", "1")


def _site_of_slurm(
    launcher: str, chosen: HostsChoice, slurm: SlurmChoice | None, environment: Mapping[str, str]
) -> Site:
    """Return the nodes of the Slurm job around this process; raises LaunchError where a step does not reach them."""
    if chosen.names:
        return _site(chosen.names, "slurm", f"Slurm job {environment['SLURM_JOB_ID']}", chosen, slurm)
    allocation = slurm_allocation(environment)
    if launcher == "slurm" and allocation.reach != "slurm":
        message = (
            f"the launcher 'slurm' reaches one group of a heterogeneous job, and here are {allocation.source} "
            f"({', '.join(allocation.slots)}); launcher=allocation reaches all by ssh"
        )
        raise LaunchError(message)
    return _site(list(allocation.slots), allocation.reach, allocation.source, chosen, slurm)


def launcher_on(site: Site | None, launcher: str) -> str:
    """Return what the launcher ``auto`` means on a site; any other stays."""
    return site.reach if site is not None and launcher == "auto" else launcher


def accelerators_of(site: Site | None) -> Accelerators:
    """Return the CUDA devices that launches may get: of all hosts of a site, or this host's.

    The oldest driver of the hosts counts. Nothing is known of hosts before they are probed, and the GPUs of this host
    say nothing of theirs.
    """
    if site is None:
        return find_accelerators()
    devices = [
        Accelerator(
            name=gpu.model or "",
            capability=version_of(gpu.capability) if gpu.capability else None,
            memory_bytes=gpu.memory_bytes,
        )
        for host in site.hosts
        for gpu in host.gpus
    ]
    drivers = [host.gpu_driver for host in site.hosts if host.gpu_driver]
    return Accelerators(tuple(devices), min(drivers, key=version_of, default=None), place="a host")


def machine_of_checks(site: Site) -> dict[str, Any]:
    """Return the facts of a site's hosts on which the result of a check depends, by their names in a fingerprint."""
    kinds = sorted({(host.cpu, host.gpu_driver or "", *(gpu.model or "" for gpu in host.gpus)) for host in site.hosts})
    return {"cpu": [cpu for cpu, *_ in kinds], "architecture": platform.machine(), "gpus": kinds}


def _gpus_per_host(chosen: HostsChoice, slurm: SlurmChoice | None) -> int | None:
    """Return how many GPUs each host of an allocation is to have; None if unknown before the probe."""
    if chosen.gpus_per_host is not None:
        return chosen.gpus_per_host
    return slurm.gpu_count if slurm else None


def _site(
    names: Sequence[str], reach: Reach, source: str, chosen: HostsChoice, slurm: SlurmChoice | None = None
) -> Site:
    if mistakes := [mistake for name in names if (mistake := host_name_mistake(name))]:
        message = "\n".join(f"{source} names a host that cannot be used: {mistake}" for mistake in mistakes)
        raise LaunchError(message)
    hosts = tuple(FoundHost(name, name, chosen.interface or "INTERFACE") for name in names)
    wants = (chosen.workers_per_host, _gpus_per_host(chosen, slurm), chosen.interface, chosen.local_folder)
    return Site(hosts, reach, source, *wants)
