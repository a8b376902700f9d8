"""The sentences by which the probe refuses hosts, from what host agents say."""

from typing import Any

from steptime.catalog.found_site import FoundHost, NeededPaths, Site
from steptime.launchers.hosts.probe import misfits

FACT = {
    "boot": "b0",
    "name": "n0",
    "interfaces": {"lo": ["127.0.0.1"], "eth0": ["10.0.0.1"]},
    "has_ipv6": False,
    "gpus": [],
    "gpus_visible": None,
    "gpus_left_out": None,
}
END = {"interface": "eth0", "address": "10.0.0.1"}
LOOK = {"seen_s": 0.1, "import_s": 0.5, "cache_seen": True, "no_folders": [], "no_programs": []}


def refused(
    gpus_per_host: int | None = None, end: dict[str, Any] = END, look: dict[str, Any] = LOOK, **fact: Any
) -> str:
    site = Site((FoundHost("n0"),), "ssh", "the study", gpus_per_host=gpus_per_host)
    return "; ".join(misfits(site, NeededPaths("/home/me/cache"), [{**FACT, **fact}], [end], [look]))


def test_a_host_that_has_all_is_not_refused():
    assert not refused()


def test_a_host_with_ipv6_addresses_alone_is_told_that_launches_use_ipv4():
    said = refused(end={"interface": None, "address": None}, interfaces={"lo": ["127.0.0.1"]}, has_ipv6=True)
    assert said.startswith("n0 has IPv6 addresses and no IPv4 address but lo 127.0.0.1; launches use IPv4 alone")


def test_a_host_with_too_few_gpus_is_told_what_hides_others():
    said = refused(4, gpus=[{}, {}], gpus_visible="0,1")
    assert said == (
        "n0 has 2 GPUs with CUDA_VISIBLE_DEVICES=0,1 there, not the 4 that the study counts with; set "
        "hosts.gpus_per_host"
    )


def test_a_host_with_a_cache_of_its_own_is_told_to_share_it():
    assert refused(look={**LOOK, "cache_seen": False}) == (
        "n0 does not share the cache /home/me/cache, where environments and datasets are; set STEPTIME_CACHE to a "
        "folder of a shared file system"
    )


def test_a_host_without_the_results_folder_is_told_that_alone():
    said = refused(look={**LOOK, "seen_s": None, "cache_seen": False, "no_folders": ["/data"]})
    assert said.startswith("n0 does not see the results folder")
    assert ";" not in said.partition("; all hosts must share it")[2]
