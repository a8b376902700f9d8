"""Which models answer a wish: where computing is taken from, where exchanging, and what nobody measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steptime.errors import WorkloadError
from steptime.profiles.asking import Wish
from steptime.profiles.form import Group, Profile
from steptime.profiles.observation import Key
from steptime.workloads.table import build_workload

_CHANGED = ("strategy", "workload", "loader", "device", "precision")


@dataclass(frozen=True)
class Target:
    """What is asked for, and the groups that know of it."""

    key: Key
    computing: Group | None
    """Whose workers compute as those asked for, but for the workload."""
    exchange: Group | None
    """That exchanges in the same way, whatever it computes."""
    refused: str | None = None


def targets(profile: Profile, wish: Wish) -> list[Target]:
    """Return one target for each group that the wish leaves apart."""
    found: dict[tuple[object, ...], Target] = {}
    for group in _candidates(profile, wish):
        key = _changed(group.key, wish)
        name = tuple(getattr(key, part) for part in Key.__dataclass_fields__ if part != "options")
        measured = any(each.key == key for each in profile.groups)
        # Groups that differ in options alone stay apart where they were measured.
        found.setdefault((*name, key.options if measured else ()), _target(profile, key))
    exact = [target for target in found.values() if any(each.key == target.key for each in profile.groups)]
    derived = [
        target
        for target in found.values()
        if target not in exact and not any(_same_question(target.key, each.key) for each in exact)
    ]
    return [*exact, *derived]


def _candidates(profile: Profile, wish: Wish) -> list[Group]:
    groups = [group for group in profile.groups if wish.framework in {None, group.key.framework}]
    if wish.strategy is not None:
        return groups
    return [
        group
        for group in groups
        if group.key.strategy != "single"
        or not any(each.key.strategy != "single" and each.key.computes_as(group.key) for each in groups)
    ]


def _same_question(one: Key, other: Key) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("framework", *_CHANGED))


def _changed(key: Key, wish: Wish) -> Key:
    changes = {name: value for name in _CHANGED if (value := getattr(wish, name)) is not None}
    changed = replace(key, **changes)
    if changed.workload == key.workload:
        return changed
    try:
        workload = build_workload(changed.workload, key.input_shape, key.classes)
    except WorkloadError:
        workload = build_workload(changed.workload)
    return replace(changed, input_shape=tuple(workload.input_shape), classes=workload.classes, dataset=None)


def _target(profile: Profile, key: Key) -> Target:
    groups = [group for group in profile.groups if group.key.framework == key.framework]
    computing, refused = _computing(groups, key)
    return Target(key, computing, _exchange(groups, key), refused)


def _computing(groups: Sequence[Group], key: Key) -> tuple[Group | None, str | None]:
    whole = [group for group in groups if group.parameters]
    if not whole:
        reasons = [group.refused for group in groups if group.refused]
        return None, reasons[0] if reasons else f"nothing of {key.framework} was measured"
    for name, what in (("device", "device"), ("precision", "precision")):
        kept = [group for group in whole if getattr(group.key, name) == getattr(key, name)]
        if not kept:
            wanted, had = getattr(key, name), getattr(whole[0].key, name)
            return None, (
                f"no launch with {what} {wanted} is in this profile, and times with {had} do not say what it would "
                f"take; measure one worker with {what}: {wanted} and fit again"
            )
        whole = kept
    same = [group for group in whole if group.key.computes_as(key)]
    if same:
        return max(same, key=lambda group: (group.key == key, group.key.strategy == key.strategy)), None
    loaders = [group for group in whole if group.key.loader == key.loader]
    if loaders:
        return min(loaders, key=lambda group: _distance(group.key, key)), None
    without = [group for group in whole if group.parameters["input_share"].how == "measured"]
    if key.loader == "synthetic" and without:
        return min(without, key=lambda group: _distance(group.key, key)), None
    return None, (
        f"no launch with loader {key.loader} is in this profile; measure one worker with loaders: {key.loader} and "
        "anatomy: true, and fit again"
    )


def _distance(one: Key, other: Key) -> tuple[bool, bool, bool]:
    return one.workload != other.workload, one.strategy != other.strategy, one.input_shape != other.input_shape


def _exchange(groups: Sequence[Group], key: Key) -> Group | None:
    found = [
        group
        for group in groups
        if group.parameters
        and group.key.strategy == key.strategy
        and group.key.device == key.device
        and any(each.link is not None and each.strategy == key.strategy for each in group.measured)
    ]
    return min(found, key=lambda group: (group.key != key, *_distance(group.key, key)), default=None)
