"""Remove what launches left whose process was killed, and nothing else."""

from steptime.launchers.emulation.control_groups import Groups
from steptime.launchers.emulation.network import NAMESPACES, remove_network
from steptime.launchers.emulation.owner import Owner, owner_of


def remove_orphans(groups: Groups | None) -> list[Owner]:
    """Remove namespaces and control groups whose owners are dead; return those owners."""
    owners = {owner_of(path.name) for path in NAMESPACES.glob("steptime-*")}
    owners |= set(groups.owners()) if groups else set()
    dead = [owner for owner in owners if owner and not owner.lives]
    for owner in dead:
        remove(owner, groups)
    return dead


def remove(owner: Owner, groups: Groups | None) -> None:
    """Remove everything that carries the mark of ``owner``, processes first."""
    if groups:
        groups.remove(owner)
    remove_network(owner)
