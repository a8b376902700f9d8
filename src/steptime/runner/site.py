"""The site of a study: its hosts, from the study itself or from the allocation that steptime runs in."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from steptime.clusters.site import FoundHost, Reach, Site, example_site
from steptime.errors import LaunchError, StudyError
from steptime.study.study import HostsChoice, Study

ON_HOSTS = ("ssh", "slurm")
"""Launchers that always use the hosts of a site."""
_MAY_USE_HOSTS = ("auto", "mpi", *ON_HOSTS)
_LIMIT_S = 60.0


def site_of_study(study: Study, environment: Mapping[str, str] = os.environ) -> Site | None:
    """Return the hosts that a study's launches use; None where they use this host alone.

    In this order: hosts that the study names; the nodes of the Slurm job that steptime runs in; hosts that PBS, LSF or
    Flux names; placeholders where the study waits for an allocation.

    Raises StudyError where the study wants hosts and nobody names any, LaunchError where a scheduler does not answer.
    """
    if study.launcher not in _MAY_USE_HOSTS:
        return None
    chosen = study.hosts or HostsChoice()
    wants_hosts = study.launcher in ON_HOSTS or study.hosts is not None or study.slurm is not None
    in_slurm = "SLURM_JOB_ID" in environment and study.launcher != "ssh"
    several = environment.get("SLURM_JOB_NUM_NODES", "1") != "1" and study.launcher == "auto"
    if in_slurm and (wants_hosts or several) and (not chosen.names or study.launcher == "slurm"):
        names = chosen.names or _slurm_nodes(environment["SLURM_JOB_NODELIST"])
        return _site(names, "slurm", f"Slurm job {environment['SLURM_JOB_ID']}", chosen)
    if study.launcher == "slurm" or (study.slurm is not None and not chosen.names):
        count = len(chosen.names) or (study.slurm.nodes if study.slurm else 1)
        return example_site(count, "slurm", chosen.workers_per_host, chosen.gpus_per_host)
    if chosen.names:
        return _site(chosen.names, "ssh", "the study", chosen)
    if not wants_hosts:
        return None
    names, source = _scheduled_hosts(environment)
    if not names:
        message = (
            f"{study.name}: it runs on hosts, and nobody names any: write hosts: [n0, n1], or run it in an allocation "
            "of Slurm (steptime submit), PBS, LSF or Flux"
        )
        raise StudyError([message])
    return _site(names, "ssh", source, chosen)


def launcher_on(site: Site | None, launcher: str) -> str:
    """Return what the launcher ``auto`` means on a site; any other stays."""
    return site.reach if site is not None and launcher == "auto" else launcher


def _site(names: Sequence[str], reach: Reach, source: str, chosen: HostsChoice) -> Site:
    hosts = tuple(FoundHost(name, name, chosen.interface or "INTERFACE") for name in names)
    return Site(hosts, reach, source, chosen.workers_per_host, chosen.gpus_per_host, chosen.interface)


def _slurm_nodes(node_list: str) -> list[str]:
    return _said(["scontrol", "show", "hostnames", node_list]).split()


def _scheduled_hosts(environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the hosts that a scheduler other than Slurm names, and by what; none of this was tried on a real one."""
    if path := environment.get("PBS_NODEFILE"):
        try:
            lines = Path(path).read_text().split()
        except OSError as error:
            message = f"$PBS_NODEFILE cannot be read: {error.strerror} ({path})"
            raise LaunchError(message) from error
        return list(dict.fromkeys(lines)), "$PBS_NODEFILE"
    if hosts := environment.get("LSB_HOSTS"):
        return list(dict.fromkeys(hosts.split())), "$LSB_HOSTS"
    if "FLUX_JOB_ID" in environment:
        return _said(["flux", "hostlist", "--expand", "local"]).split(), f"Flux job {environment['FLUX_JOB_ID']}"
    return [], ""


def _said(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{' '.join(command)} did not say the hosts of the allocation: {error}"
        raise LaunchError(message) from error
