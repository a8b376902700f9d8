"""The hosts of a run that are alive: where one dies, spare ones take its place."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from steptime.catalog.site import NeededPaths, Site
from steptime.errors import LaunchError, Unfinished
from steptime.launchers.hosts.probe import NOTHING_MORE, answering
from steptime.measurements.store import Store
from steptime.runner.progress import Observer
from steptime.runner.site import found_site

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
