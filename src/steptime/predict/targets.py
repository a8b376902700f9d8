"""Targets of a query: the groups of a profile that know of its computing and of its exchange, or a refusal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from steptime.catalog.choices import SYNTHETIC, strategy_named
from steptime.catalog.workloads.table import build_workload
from steptime.errors import WorkloadError
from steptime.fitting.observation import GroupKey
from steptime.fitting.profile import Machine, Profile, ProfileGroup
from steptime.model.compute import DEVICES, Device
from steptime.predict.query import Query

_CHANGED = ("strategy", "workload", "loader", "device", "precision")


@dataclass(frozen=True)
class Target:
    """What is asked for, and the groups that know of it."""

    key: GroupKey
    computing: ProfileGroup | None
    """Whose workers compute as those asked for, but for the workload."""
    exchange: ProfileGroup | None
    """That exchanges in the same way, whatever it computes."""
    refused: str | None = None
    transferred: tuple[Device, Device] | None = None
    """From the device that was measured to the one that is asked for, by their data sheets."""


def targets(profile: Profile, query: Query) -> list[Target]:
    """Return one target for each group that the query leaves apart."""
    found: dict[tuple[object, ...], Target] = {}
    for group in _candidates(profile, query):
        key = _changed(group.key, query)
        name = tuple(getattr(key, part) for part in GroupKey.__dataclass_fields__ if part != "options")
        measured = any(each.key == key for each in profile.groups)
        # Groups that differ in options alone stay apart where they were measured.
        found.setdefault((*name, key.options if measured else ()), _on_device(profile, _target(profile, key), query))
    exact = [target for target in found.values() if any(each.key == target.key for each in profile.groups)]
    derived = [
        target
        for target in found.values()
        if target not in exact and not any(_same_question(target.key, each.key) for each in exact)
    ]
    return [*exact, *derived]


def _candidates(profile: Profile, query: Query) -> list[ProfileGroup]:
    groups = [
        group
        for group in profile.groups
        if query.framework in {None, group.key.framework}
        and query.tuning in {None, group.key.tuning}
        and all(group.key.setting(name) == value for name, value in query.settings)
    ]
    if query.strategy is not None:
        return groups
    return [
        group
        for group in groups
        if not _is_single(group) or not any(not _is_single(each) and each.key.computes_as(group.key) for each in groups)
    ]


def _is_single(group: ProfileGroup) -> bool:
    return strategy_named(group.key.strategy).single_baseline


def _on_device(profile: Profile, target: Target, query: Query) -> Target:
    """Return the target on the device that is asked for, refused where nothing relates it to what was measured."""
    if query.device is None or query.device not in DEVICES or target.computing is None:
        return target
    here = measured_device(profile.machine)
    if here is None:
        reason = (
            f"the measured device ({profile.machine.gpu}) is not in the table of data sheets, so that nothing relates "
            f"it to {query.device}; measure one worker there"
        )
        return replace(target, computing=None, refused=reason)
    return replace(target, transferred=(here, DEVICES[query.device]))


def _same_question(one: GroupKey, other: GroupKey) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("framework", "tuning", "settings", *_CHANGED))


def measured_device(machine: Machine) -> Device | None:
    """Return the data sheet of the devices of a machine; None if it has none, or one that is not in the table."""
    if machine.gpu is None:
        return None
    words = re.sub(r"[^a-z0-9]+", " ", machine.gpu.lower().replace("hbm3", "sxm")).split()
    # A driver may write apart what the table writes together: "RTX 2080 Ti".
    written = {"".join(words[begin:end]) for begin in range(len(words)) for end in range(begin + 1, len(words) + 1)}
    found = [name for name in DEVICES if all(part in written for part in name.split("-"))]
    return DEVICES[max(found, key=len)] if found else None


def _changed(key: GroupKey, query: Query) -> GroupKey:
    changes = {name: value for name in _CHANGED if (value := getattr(query, name)) is not None}
    if query.device in DEVICES:  # by its data sheet, from what was measured on another
        changes["device"] = "cuda"
    changed = replace(key, **changes)
    if changed.workload == key.workload:
        return changed
    try:
        workload = build_workload(changed.workload, key.input_shape, key.classes)
    except WorkloadError:
        workload = build_workload(changed.workload)
    return replace(changed, input_shape=tuple(workload.input_shape), classes=workload.classes, dataset=None)


def _target(profile: Profile, key: GroupKey) -> Target:
    groups = [group for group in profile.groups if group.key.framework == key.framework]
    computing, refused = _computing(groups, key)
    return Target(key, computing, _exchange(groups, key), refused)


def _with_same_input(groups: Sequence[ProfileGroup], key: GroupKey) -> list[ProfileGroup]:
    """Return groups with the loader of a key; for synthetic batches those whose input was measured do too."""
    same = [group for group in groups if group.key.loader == key.loader]
    if same or key.loader != SYNTHETIC.name:
        return same
    return [group for group in groups if group.parameters["input_share"].how == "measured"]


def _computing(groups: Sequence[ProfileGroup], key: GroupKey) -> tuple[ProfileGroup | None, str | None]:
    whole = [group for group in groups if group.parameters]
    if not whole:
        nothing_measured = f"nothing of {key.framework} was measured"
        return None, next((group.refused for group in groups if group.refused), nothing_measured)
    for name in ("device", "precision"):
        kept = [group for group in whole if getattr(group.key, name) == getattr(key, name)]
        if not kept:
            wanted, had = getattr(key, name), getattr(whole[0].key, name)
            return None, (
                f"no launch with {name} {wanted} is in this profile, and times with {had} do not say what it would "
                f"take; measure one worker with {name}: {wanted} and fit again"
            )
        whole = kept
    same = [group for group in whole if group.key.computes_as(key)]
    if same:
        return max(same, key=lambda group: (group.key == key, group.key.strategy == key.strategy)), None
    if alike := _with_same_input(whole, key):
        return min(alike, key=lambda group: _distance(group.key, key)), None
    return None, (
        f"no launch with loader {key.loader} is in this profile; measure one worker with loaders: {key.loader} and "
        "breakdown: true, and fit again"
    )


def _distance(one: GroupKey, other: GroupKey) -> tuple[bool, ...]:
    return tuple(
        getattr(one, part) != getattr(other, part)
        for part in ("settings", "tuning", "workload", "strategy", "input_shape")
    )


def _exchange(groups: Sequence[ProfileGroup], key: GroupKey) -> ProfileGroup | None:
    found = [
        group
        for group in groups
        if group.parameters
        and group.key.strategy == key.strategy
        and group.key.device == key.device
        and any(each.link is not None and each.strategy == key.strategy for each in group.measured)
    ]
    return min(found, key=lambda group: (group.key != key, *_distance(group.key, key)), default=None)
