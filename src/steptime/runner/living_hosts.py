"""The hosts of a run that are alive: where one dies, spare ones take its place."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from steptime.clusters.site import Site
from steptime.errors import LaunchError, Unfinished

_MOST_RETURNS = 3
"""How often hosts that were lost may be used again; a link that comes and goes ends the run then."""


@dataclass
class LivingHosts:
    """The hosts of one run. A host that has died is left out; where too few are left, all are tried once more."""

    site: Site
    """The hosts that launches use, as they were found."""
    needed: int
    """The most hosts that a launch of the run needs."""
    probe: Callable[[Site], Site]
    """Asks hosts what they have; raises LaunchError where one does not answer."""
    note: Callable[[str], None]
    """Takes what the user should read."""
    _all: Site = field(init=False)
    _lost: list[str] = field(default_factory=list, init=False)
    _unused: bool = field(default=False, init=False)
    """Whether a host was lost since the last probe."""
    _returns: int = field(default=0, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Remember which hosts the run began with."""
        self._all = self.site

    def lose(self, names: Sequence[str]) -> None:
        """Note that hosts have died; the next launch does without them."""
        with self._changing:
            new = [name for name in names if name not in self._lost]
            self._lost += new
            self._unused = self._unused or bool(new)

    def current(self) -> Site:
        """Return the hosts for a launch, asked anew where one of them has died.

        Raises Unfinished where fewer are left than launches need.
        """
        with self._changing:
            if self._unused:
                self.site = self._without_lost()
                self._unused = False
            return self.site

    def _without_lost(self) -> Site:
        lost = ", ".join(self._lost)
        left = [host for host in self._all.hosts if host.name not in self._lost]
        if len(left) >= self.needed:
            self.note(f"lost: {lost}; the study goes on with {', '.join(host.name for host in left)}")
            return self._probed(replace(self._all, hosts=tuple(left)), lost)
        self._returns += 1
        if self._returns > _MOST_RETURNS:
            raise self._too_few(lost, f"they were lost {self._returns} times")
        found = self._probed(self._all, lost)
        self.note(f"{lost} was lost, and answers again")
        self._lost = []
        return found

    def _probed(self, site: Site, lost: str) -> Site:
        try:
            return self.probe(site)
        except LaunchError as error:
            raise self._too_few(lost, str(error)) from error

    def _too_few(self, lost: str, why: str) -> Unfinished:
        return Unfinished(
            f"too few hosts: lost {lost}, and launches need {self.needed} of {len(self._all.hosts)}: {why}"
        )
