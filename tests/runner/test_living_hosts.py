"""Hosts that die while a study runs, with spare ones and without; the probe is a function of the test."""

import pytest

from steptime.clusters.site import FoundHost, Site
from steptime.errors import LaunchError, Unfinished
from steptime.runner.living_hosts import LivingHosts


class Probe:
    """Answers for all hosts but those in ``dead``."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.asked: list[list[str]] = []

    def __call__(self, site: Site) -> Site:
        self.asked.append(site.names)
        if silent := self.dead.intersection(site.names):
            message = f"{', '.join(silent)} did not answer"
            raise LaunchError(message)
        return site


@pytest.fixture
def probe() -> Probe:
    return Probe()


def hosts(probe: Probe, needed: int, notes: list[str] | None = None) -> LivingHosts:
    site = Site(tuple(FoundHost(name) for name in ("n0", "n1", "n2")), "ssh", "the study")
    return LivingHosts(site, needed, probe, (notes if notes is not None else []).append)


def test_hosts_that_live_are_not_asked_again(probe):
    living = hosts(probe, 2)
    living.lose([])
    assert living.current().names == ["n0", "n1", "n2"]
    assert probe.asked == []


def test_a_spare_host_takes_the_part_of_one_that_died(probe):
    notes: list[str] = []
    living = hosts(probe, 2, notes)
    living.lose(["n1"])
    assert living.current().names == ["n0", "n2"]
    assert notes == ["lost: n1; the study goes on with n0, n2"]


def test_without_a_spare_host_the_run_ends_and_names_those_that_died(probe):
    living = hosts(probe, 3)
    probe.dead = {"n1"}
    living.lose(["n1"])
    with pytest.raises(Unfinished, match="too few hosts: lost n1, and launches need 3 of 3: n1 did not answer"):
        living.current()


def test_a_host_that_answers_again_is_used_again(probe):
    living = hosts(probe, 3)
    living.lose(["n1"])
    assert living.current().names == ["n0", "n1", "n2"]


def test_a_host_that_comes_and_goes_ends_the_run_some_day(probe):
    living = hosts(probe, 3)
    for _ in range(3):
        living.lose(["n1"])
        living.current()
    living.lose(["n1"])
    with pytest.raises(Unfinished, match="they were lost 4 times"):
        living.current()
