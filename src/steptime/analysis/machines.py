"""The machines that results folders were measured on: which folders are of one, and how the others differ.

A machine is known by its ``id`` and its processor, since machines made from one image may share the id; without an id
by its name and its hardware.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steptime.results.store import Store
from steptime.units import format_bytes

_HARDWARE = ("cpu", "cores", "machine_threads", "quota_cores", "memory_bytes", "architecture", "gpus", "gpu_driver")
_OF_ID = ("cpu", "architecture")
"""Hardware that neither a container nor a change of settings alters."""
_SYSTEM = ("os", "kernel", "steptime")
_FORMS = {
    "machine_threads": "{} threads",
    "cores": "{} cores",
    "quota_cores": "at most {} cores",
    "gpu_driver": "driver {}",
    "kernel": "kernel {}",
    "steptime": "steptime {}",
}
_MOST_FACTS = 2
"""In a name."""
_ID_LETTERS = 6
"""Of an id that a name shows."""


@dataclass(frozen=True)
class MachineFolder:
    """A results folder with the machine that it was measured on."""

    store: Store
    machine: str
    """A name that no other machine of the same report has."""
    facts: Mapping[str, Any]

    @property
    def version(self) -> str:
        """Of steptime, when the folder was made."""
        return str(self.facts.get("steptime") or "not recorded")


def folders_by_machine(stores: Sequence[Store]) -> list[MachineFolder]:
    """Return results folders with the names of their machines, those of one machine behind one another.

    A name is that of the host; where several machines have it, with the facts in which they differ. Of a machine of
    which nothing is on record it is the name of the folder.
    """
    members: dict[str, list[MachineFolder]] = {}
    for store in stores:
        facts = store.machine() or {}
        host = str(facts.get("hostname") or store.path.absolute().name)
        members.setdefault(_identity(facts, store), []).append(MachineFolder(store, host, facts))
    firsts = [own[0] for own in members.values()]
    return [
        replace(member, machine=name)
        for own, name in zip(members.values(), _names(firsts), strict=True)
        for member in own
    ]


def _identity(facts: Mapping[str, Any], store: Store) -> str:
    """Return what folders of one machine have in common; a folder without any fact is of a machine of its own."""
    if facts.get("id"):
        return repr([facts["id"], *(_fact(facts, name) for name in _OF_ID)])
    known = [_fact(facts, name) for name in ("hostname", *_HARDWARE)]
    return repr(known) if any(known) else str(store.path.absolute())


def _names(machines: Sequence[MachineFolder]) -> list[str]:
    names = []
    for own in machines:
        alike = [other.facts for other in machines if other.machine == own.machine]
        differing = [name for name in (*_HARDWARE, *_SYSTEM) if len({_fact(facts, name) for facts in alike}) > 1]
        known = list(filter(None, (_fact(own.facts, name) for name in differing)))[:_MOST_FACTS]
        names.append(f"{own.machine} ({', '.join(known)})" if known else own.machine)
    return [
        name if names.count(name) == 1 else f"{name} {str(own.facts.get('id') or number)[:_ID_LETTERS]}"
        for number, (name, own) in enumerate(zip(names, machines, strict=True), 1)
    ]


def _fact(facts: Mapping[str, Any], name: str) -> str:
    """Return a fact as text; empty if it is not known."""
    value = facts.get(name)
    if isinstance(value, list):
        return ", ".join(str(each.get("name")) if isinstance(each, dict) else str(each) for each in value)
    if isinstance(value, (int, float)) and name.endswith("_bytes"):
        return format_bytes(value)
    return "" if value is None else _FORMS.get(name, "{}").format(value)
