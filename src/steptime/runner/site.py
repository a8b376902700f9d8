"""The site of a run: its hosts, named by the user or by the allocation that steptime runs in, and their probe.

The hosts of a run that are alive: where one dies, spare ones take its place.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from steptime.catalog.accelerators import Accelerator, Accelerators, find_accelerators, version_of
from steptime.catalog.choices import launchers_with
from steptime.catalog.cluster import FoundHost, NeededPaths, Reach, Site, example_site
from steptime.errors import FileError, LaunchError, StudyError, Unfinished, UsageError
from steptime.file_name import host_name_mistake
from steptime.flags import flag_text
from steptime.launchers.hosts.probe import NOTHING_MORE, answering, probed
from steptime.plain_file import read_user_text
from steptime.results.store import Store
from steptime.runner.progress import Observer
from steptime.study.hosts import HostsChoice, SlurmChoice
from steptime.study.quantities import expanded_hosts
from steptime.study.study import Study

ON_HOSTS = ("ssh", "slurm")
"""Launchers that always use the hosts of a site."""
_MAY_USE_HOSTS = launchers_with("hosts")
_WHEREVER = set(_MAY_USE_HOSTS).difference(ON_HOSTS)
"""Launchers that use the nodes of an allocation of several, and this host elsewhere."""
_ALLOCATIONS = "an allocation of Slurm (steptime submit), PBS, LSF, Grid Engine, Flux, Cobalt or OAR"
_HERE_ALONE = "launcher=local runs on this host alone"
_LIMIT_S = 60.0
_MOST_BYTES = 2**20
_FILES_OF_HOSTS = (
    "PBS_NODEFILE",  # PBS, Torque: a host on each line, once for each of its slots
    "LSB_DJOB_HOSTFILE",  # LSF likewise
    "COBALT_NODEFILE",
    "OAR_NODEFILE",
    "LOADL_HOSTFILE",  # LoadLeveler
    "PE_HOSTFILE",  # Grid Engine: host, slots, queue and processors on each line
)
"""Variables with the path of a file that begins each line with a host."""


def site_of_study(study: Study, environment: Mapping[str, str] = os.environ) -> Site | None:
    """Return the hosts that a study's launches use; None if they use this host alone.

    Raises StudyError where the study wants hosts and none are named, LaunchError where a scheduler does not answer.
    """
    try:
        return find_site(study.launcher, study.hosts, study.slurm, "the study", environment)
    except UsageError as error:
        message = f"{study.name}: it {error}: write hosts: [n0, n1], or run it in {_ALLOCATIONS}; {_HERE_ALONE}"
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
    in_slurm = "SLURM_JOB_ID" in environment and launcher != "ssh"
    several = environment.get("SLURM_JOB_NUM_NODES", "1") != "1" and launcher in _WHEREVER
    if in_slurm and (wants_hosts or several) and (not chosen.names or launcher == "slurm"):
        names = chosen.names or _slurm_nodes(environment)
        return _site(names, "slurm", f"Slurm job {environment['SLURM_JOB_ID']}", chosen, slurm)
    if launcher == "slurm" or (slurm is not None and not chosen.names):
        count = len(chosen.names) or (slurm.nodes if slurm else 1)
        return example_site(count, "slurm", chosen.workers_per_host, _gpus_per_host(chosen, slurm))
    if chosen.names:
        return _site(chosen.names, "ssh", source, chosen)
    if not wants_hosts:
        return None
    names, scheduler = _scheduled_hosts(environment)
    if not names:
        message = "runs on hosts, and none are named"
        raise UsageError([message])
    return _site(names, "ssh", scheduler, chosen)


def probe_site(
    site: Site, store: Store, observer: Observer, submission: str, needed: NeededPaths = NOTHING_MORE
) -> Site:
    """Return a site as the probe finds it, shown to the user and kept in a results folder.

    Args:
        site: the hosts.
        store: the results folder, which all of them must share.
        observer: of the run.
        submission: the command that would have Slurm make an allocation.
        needed: what all hosts must have at the same paths, beside the results folder.

    Raises LaunchError where a host cannot be used, or where there is no allocation yet.
    """
    if site.is_example:
        message = f"the launcher 'slurm' runs inside an allocation; make one with: {submission}"
        raise LaunchError(message)
    observer.stage(f"Probing {len(site.hosts)} hosts", None)
    observer.working_on(site.in_words())
    return found_site(site, store, observer, needed)


def found_site(site: Site, store: Store, observer: Observer, needed: NeededPaths = NOTHING_MORE) -> Site:
    """Return a site as the probe finds it, as ``probe_site`` does, within whatever stage the run is in."""
    found = probed(site, store.path / "probe", needed)
    observer.note("\n".join([found.in_words(), *(host.in_words() for host in found.hosts)]))
    if differences := found.differences():
        kinds = "; ".join(f"{title}: {text}" for title, text in differences.items())
        observer.note(f"{flag_text('hosts_differ', detail=kinds)}. A step lasts as long as on the slowest")
    before = (store.get("sites") or {}).get("sites", [])
    store.put("sites", {"sites": [*before, asdict(found)]})
    return found


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


def _slurm_nodes(environment: Mapping[str, str]) -> list[str]:
    """Return the nodes of the Slurm job around this process; a container of it may lack Slurm's programs."""
    written = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not written:
        message = f"Slurm job {environment['SLURM_JOB_ID']}: SLURM_JOB_NODELIST, its nodes, is not set; {_HERE_ALONE}"
        raise LaunchError(message)
    if shutil.which("scontrol") is not None:
        with contextlib.suppress(LaunchError):  # it may lack slurm.conf
            return _said(["scontrol", "show", "hostnames", written]).split()
    try:
        return expanded_hosts(written)
    except ValueError as error:
        message = f"SLURM_JOB_NODELIST: {error}; scontrol, which reads it, is not on PATH or failed; {_HERE_ALONE}"
        raise LaunchError(message) from error


def _scheduled_hosts(environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the hosts that a scheduler names, and by what; of those but Slurm none was tried on a real one."""
    if "SLURM_JOB_ID" in environment:
        return _slurm_nodes(environment), f"Slurm job {environment['SLURM_JOB_ID']}"
    for name in _FILES_OF_HOSTS:
        if path := environment.get(name):
            return _hosts_in_file(name, Path(path)), f"${name}"
    for name in ("LSB_HOSTS", "LOADL_PROCESSOR_LIST"):
        if hosts := environment.get(name):
            return list(dict.fromkeys(hosts.split())), f"${name}"
    if hosts := environment.get("LSB_MCPU_HOSTS"):  # a host, its slots, a host, its slots, …
        words = hosts.split()
        if len(words) % 2 or not all(count.isdecimal() for count in words[1::2]):
            message = f"$LSB_MCPU_HOSTS is {hosts!r}; it should name hosts, each with its number of slots behind it"
            raise LaunchError(message)
        return list(dict.fromkeys(words[::2])), "$LSB_MCPU_HOSTS"
    if "FLUX_JOB_ID" in environment or "FLUX_URI" in environment:  # a batch job has the second alone
        source = f"Flux job {environment['FLUX_JOB_ID']}" if "FLUX_JOB_ID" in environment else "the Flux instance"
        return list(dict.fromkeys(_said(["flux", "hostlist", "--expand", "local"]).split())), source
    return [], ""


def _hosts_in_file(name: str, path: Path) -> list[str]:
    try:
        rows = [line.split() for line in read_user_text(path, _MOST_BYTES).splitlines()]
    except FileError as error:
        message = f"${name} cannot be read: {error}; {_HERE_ALONE}"
        raise LaunchError(message) from error
    hosts = list(dict.fromkeys(row[0] for row in rows if row))
    if not hosts:
        message = f"${name} names a file without hosts ({path}); {_HERE_ALONE}"
        raise LaunchError(message)
    return hosts


def _said(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{' '.join(command)} did not name the hosts of the allocation: {error}; {_HERE_ALONE}"
        raise LaunchError(message) from error


_MOST_RETURNS = 3
"""How often hosts that were lost may be used again; a link that comes and goes ends the run then."""


@dataclass
class LivingHosts:
    """The hosts of one run, without those that do not answer any more."""

    site: Site
    """The hosts that launches use, as they were found."""
    needed: int
    """The most hosts that a launch of the run needs."""
    probe: Callable[[Site], Site]
    """Asks hosts what they have; raises LaunchError where one does not answer."""
    answering: Callable[[Site], Sequence[str]]
    """Returns the names of the hosts that answer now."""
    note: Callable[[str], None]
    """Takes what the user should read."""
    _all: Site = field(init=False)
    _in_doubt: bool = field(default=False, init=False)
    """Whether a host was not heard any more since the last look."""
    _returns: int = field(default=0, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Remember which hosts the run began with."""
        self._all = self.site

    def doubt(self, names: Sequence[str]) -> None:
        """Note that hosts were not heard any more; before the next launch all are asked whether they answer."""
        with self._changing:
            self._in_doubt = self._in_doubt or bool(names)

    def current(self) -> Site:
        """Return the hosts for a launch, asked anew where one was not heard any more.

        Raises Unfinished where fewer are left than launches need.
        """
        with self._changing:
            if self._in_doubt:
                self.site = self._living()
                self._in_doubt = False
            return self.site

    def _living(self) -> Site:
        names = set(self.answering(self._all))
        left = tuple(host for host in self._all.hosts if host.name in names)
        lost = ", ".join(host.name for host in self._all.hosts if host.name not in names)
        if len(left) < self.needed:
            message = (
                f"too few hosts: {lost} cannot be reached, and launches need {self.needed} of {len(self._all.hosts)}"
            )
            raise Unfinished(message)
        if not lost:
            self._returns += 1
            if self._returns > _MOST_RETURNS:
                message = f"hosts were lost {self._returns} times and answered again: their links do not last"
                raise Unfinished(message)
        words = f"lost: {lost}; the study goes on with" if lost else "all hosts answer again:"
        self.note(f"{words} {', '.join(host.name for host in left)}")
        try:
            return self.probe(replace(self._all, hosts=left))
        except LaunchError as error:
            message = f"hosts cannot be used any more: {error}"
            raise Unfinished(message) from error


def living_hosts(
    site: Site, needed: int, store: Store, observer: Observer, paths: NeededPaths = NOTHING_MORE
) -> LivingHosts:
    """Return the hosts of a run that were found; those that are left when one dies are kept in its results folder."""
    probe = partial(found_site, store=store, observer=observer, needed=paths)
    return LivingHosts(site, needed, probe, answering, observer.note)
