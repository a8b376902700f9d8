"""The hosts of a run that are alive, and what their probe finds; where one dies, spare ones take its place."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from steptime.catalog.found_site import NeededPaths, Site
from steptime.errors import LaunchError, Unfinished
from steptime.execution.progress import Observer
from steptime.flags import flag_text
from steptime.launchers.hosts.probe import NOTHING_MORE, answering, probed
from steptime.results.store import Store


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
    if niced := [f"{host.name} {host.niceness}" for host in found.hosts if host.niceness > 0]:
        advice = "; RAY_worker_niceness=0 where Ray is started ends that" if found.reach == "ray" else ""
        observer.note(f"workers run at a niceness above 0, other programs come first: {', '.join(niced)}{advice}")
    if differences := found.differences():
        kinds = "; ".join(f"{title}: {text}" for title, text in differences.items())
        observer.note(f"{flag_text('hosts_differ', detail=kinds)}. A step lasts as long as on the slowest")
    before = (store.get("sites") or {}).get("sites", [])
    store.put("sites", {"sites": [*before, asdict(found)]})
    return found


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
