"""Hosts that die while a study runs, with spare ones and without; the probe is a function of the test."""

import pytest

from steptime.catalog.found_site import FoundHost, Site
from steptime.errors import Unfinished
from steptime.execution.living_hosts import LivingHosts


class Hosts:
    """Three hosts, of which those in ``dead`` do not answer."""

    def __init__(self, needed: int) -> None:
        self.dead: set[str] = set()
        self.probed: list[list[str]] = []
        self.notes: list[str] = []
        site = Site(tuple(FoundHost(name) for name in ("n0", "n1", "n2")), "ssh", "the study")
        self.living = LivingHosts(site, needed, self._probe, self._answering, self.notes.append)

    def lose(self, *names: str) -> None:
        self.dead = set(names)
        self.living.doubt(["n0", *names])

    def _probe(self, site: Site) -> Site:
        self.probed.append(site.names)
        return site

    def _answering(self, site: Site) -> list[str]:
        return [name for name in site.names if name not in self.dead]


def test_hosts_that_are_heard_are_not_asked_again():
    hosts = Hosts(needed=2)
    hosts.living.doubt([])
    assert hosts.living.current().names == ["n0", "n1", "n2"]
    assert hosts.probed == []


def test_a_spare_host_takes_the_part_of_one_that_died():
    hosts = Hosts(needed=2)
    hosts.lose("n1")
    assert hosts.living.current().names == ["n0", "n2"]
    assert hosts.notes == ["lost: n1; the study goes on with n0, n2"]
    assert hosts.probed == [["n0", "n2"]]


def test_without_a_spare_host_the_run_ends_and_names_those_that_died():
    hosts = Hosts(needed=3)
    hosts.lose("n1")
    with pytest.raises(Unfinished, match="too few hosts: n1 cannot be reached, and launches need 3 of 3"):
        hosts.living.current()


def test_a_host_that_answers_again_is_used_again():
    hosts = Hosts(needed=2)
    hosts.lose("n1")
    hosts.living.current()
    hosts.lose()
    assert hosts.living.current().names == ["n0", "n1", "n2"]


def test_a_link_that_comes_and_goes_ends_the_run_some_day():
    hosts = Hosts(needed=3)
    for _ in range(3):
        hosts.lose()
        hosts.living.current()
    hosts.lose()
    with pytest.raises(Unfinished, match="hosts were lost 4 times"):
        hosts.living.current()
