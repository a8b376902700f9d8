"""The sites of a study's launches: sets of hosts, which may differ in speed, and what may be compared over them.

A job that Slurm starts again may get other hosts, and a study goes on without a host that has died. Each block of
launches ran on one site, so that trials are compared within blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from steptime.analysis.summary_form import SiteForm
from steptime.results.stored_record import LaunchRecord
from steptime.statistics.comparison import Measured, compare_trials, several_sites, share_blocks
from steptime.statistics.launch_times import LaunchTimes


def best_first(members: Sequence[Measured]) -> list[Measured]:
    """Return the trials of a group by their step times; without those that may not be compared with the best.

    Where launches ran on several sites, the order is that of the ratios of launches of common blocks: a trial that ran
    on slower hosts more often than others is no slower for that.
    """
    ordered = sorted(members, key=_step_time)
    if not several_sites([launch for member in members for launch in member.launches]):
        return ordered
    # Not a trial that was alone on a site of its own, whatever its speed.
    best = max(ordered, key=lambda member: sum(share_blocks(member, other) for other in ordered))
    ratios: list[tuple[float, Measured]] = []
    for _ in ordered:
        shared = [member for member in ordered if share_blocks(member, best)]
        ratios = sorted(((_ratio(member, best), member) for member in shared), key=lambda each: each[0])
        if ratios[0][1] is best:
            break
        best = ratios[0][1]
    return [best, *(member for _, member in ratios if member is not best)]


def incomparable(points: Iterable[Measured]) -> dict[str, str]:
    """Return why trials have no rank that ran on other hosts than the best of their group only, by trial id."""
    groups: dict[str, list[Measured]] = {}
    for point in points:
        groups.setdefault(point.trial.group, []).append(point)
    kept = {member.trial.id for members in groups.values() for member in best_first(members)}
    return {
        member.trial.id: (
            f"it ran on other hosts than the best of its group ({_hosts(member)}), and no block of launches has both; "
            "a larger launches.min would compare them"
        )
        for members in groups.values()
        for member in members
        if member.trial.id not in kept
    }


def unknown_machine(machine: Mapping[str, Any], launches: Iterable[LaunchRecord]) -> list[str]:
    """Return the sentence about a folder whose ``machine.json`` may be of another machine than its launches.

    Launches on the hosts of a site, on hosts that were made, and in containers have names of their own.
    """
    own = [each for each in launches if each.site is None]
    named = {each.machine for each in own} - {None}
    on_host = [each for each in own if each.cluster is None and not each.environment.get("container")]
    hosts = {worker.host for each in on_host for worker in each.evidence()} - {None}
    known = machine.get("hostname")
    if machine.get("id") is not None:
        return []
    if named:
        mistake = f"names no machine (id), and launches ran on {' and '.join(sorted(map(str, named)))}"
    elif known is not None and hosts and known not in hosts:
        mistake = f"is of {known}, and launches ran on {' and '.join(sorted(map(str, hosts)))}"
    else:
        return []
    return [f"machine.json {mistake}: what rests on cores, memory and devices may be of another machine"]


def site_forms(launches: Iterable[LaunchTimes], kept: Mapping[str, Any]) -> list[SiteForm]:
    """Return the sites of launches in the order of their blocks; none where no launch names its hosts.

    Args:
        launches: of all trials.
        kept: the object ``sites`` of the results folder, by which each run keeps who named its hosts.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    for launch in launches:
        if launch.site is not None:
            found.setdefault(launch.site, []).append(launch.block)
    forms = [
        SiteForm(hosts=list(hosts), sources=_sources(hosts, kept), launches=len(blocks), blocks=sorted(set(blocks)))
        for hosts, blocks in found.items()
    ]
    return sorted(forms, key=lambda form: form.blocks)


def _step_time(member: Measured) -> float:
    """Return the logarithm of the step time of a trial, see ``interval.step_time``."""
    return fmean(launch.log_mean for launch in member.launches)


def _ratio(member: Measured, best: Measured) -> float:
    return 1.0 if member is best else compare_trials(member, best).ratio


def _hosts(member: Measured) -> str:
    sites = dict.fromkeys(launch.site for launch in member.launches)
    return "; ".join(", ".join(site) if site else "not recorded" for site in sites)


def _sources(hosts: Sequence[str], kept: Mapping[str, Any]) -> list[str]:
    """Return who named the hosts, each once; somebody else may have written the object."""
    sites = kept.get("sites")
    found = []
    for site in sites if isinstance(sites, list) else []:
        named = site.get("hosts") if isinstance(site, dict) else None
        names = [each.get("name") for each in named if isinstance(each, dict)] if isinstance(named, list) else []
        if names == list(hosts) and isinstance(site.get("source"), str):
            found.append(site["source"])
    return list(dict.fromkeys(found))
