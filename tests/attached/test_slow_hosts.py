"""Ranks that are slow together are named together: those of a host as its own, others by their numbers."""

import os
import random
import subprocess
import sys

import pytest
from stored_processes import ddp_steps, found_in, process_lines, sentences_of, write

from steptime.diagnosis.rules import script_findings
from steptime.document.section import SectionTable
from steptime.report.attached import attached_section, headline

PER_HOST, STEPS = 4, 24


def job(folder, slow, hosts=2, late_ms=15.0, seed=1):
    """Run ranks of hosts with one clock, of which some come late by so much and each by another part of a ms."""
    stream = random.Random(seed)
    ranks = range(hosts * PER_HOST)
    late = [[(rank in slow) * late_ms + stream.random() for rank in ranks] for _ in range(STEPS)]
    lines = [process_lines(rank, len(ranks), ddp_steps(rank, late.__getitem__, STEPS)) for rank in ranks]
    for rank in ranks:
        lines[rank][0]["host"] = f"n{rank // PER_HOST}"
    return found_in(write(folder, *lines))


@pytest.mark.parametrize(("hosts", "host"), [(2, 0), (2, 1), (4, 2)])
def test_a_host_whose_ranks_are_all_slow_is_named(tmp_path, hosts, host):
    run = job(tmp_path, range(PER_HOST * host, PER_HOST * (host + 1)), hosts)
    assert run.waited_for.hosts == [f"n{host}"]
    assert f"for host n{host} (all 4 ranks); their forward takes 1" in sentences_of(run)["straggler"]


@pytest.mark.parametrize(
    ("slow", "title"),
    [([2, 3], "ranks 2, 3"), ([3, 4, 5], "ranks 3 to 5"), ([1, 5], "ranks 1, 5"), ([0, 1, 2, 6], "ranks 0 to 2, 6")],
)
def test_ranks_that_are_not_all_of_a_host_are_named_by_their_numbers(tmp_path, slow, title):
    run = job(tmp_path, slow)
    assert (run.waited_for.ranks, run.waited_for.hosts) == (slow, [])
    assert run.waited_for.title == title


def test_one_slow_rank_of_a_host_is_named_alone(tmp_path):
    run = job(tmp_path, [5])
    assert (run.waited_for.rank, run.waited_for.ranks, run.waited_for.title) == (5, [5], "rank 5")


def test_a_rank_that_is_much_slower_than_the_rest_of_its_host_is_named_alone(tmp_path):
    stream = random.Random(3)
    late = [[30.0 * (rank == 5) + 3.0 * (rank > 3) + stream.random() for rank in range(8)] for _ in range(STEPS)]
    lines = [process_lines(rank, 8, ddp_steps(rank, late.__getitem__, STEPS)) for rank in range(8)]
    assert found_in(write(tmp_path, *lines)).waited_for.ranks == [5]


def test_equal_ranks_are_never_named_together(tmp_path):
    for seed in range(12):
        run = job(tmp_path / str(seed), [], seed=seed)
        assert run.waited_for is None or not run.waited_for.ranks, seed


def test_two_slow_hosts_of_four_are_named(tmp_path):
    run = job(tmp_path, [*range(4), *range(8, 12)], hosts=4)
    assert run.waited_for.title == "hosts n0, n2 (all 8 ranks)"


def test_what_they_take_longer_is_shown_as_a_share(tmp_path):
    run = job(tmp_path, range(4, 8), late_ms=2.0)
    assert run.waited_for.part_share == pytest.approx(2.0 / 5.5, rel=0.05)
    share = round(100 * run.waited_for.part_share)
    assert f" ms ({share} %) longer than that of the others" in sentences_of(run)["straggler"]


def test_advice_is_about_the_host(tmp_path):
    advice = next(each for each in script_findings(job(tmp_path, range(4, 8))) if each.rule == "own_straggler")
    assert advice.change.startswith("make host n1 (all 4 ranks) as quick as the others: their forward")


def test_the_report_lists_hosts_with_their_ranks_and_devices(tmp_path):
    lines = [process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), boot=f"n{rank}") for rank in range(2)]
    lines[1].insert(2, {"kind": "device", "step": 0, "regions": {"forward": 1}, "name": "0: H200"})
    run = found_in(write(tmp_path, *lines))
    hosts = next(part for part in attached_section(run).parts if getattr(part, "title", "") == "Hosts")
    (table,) = (part for part in hosts.parts if isinstance(part, SectionTable))
    assert [row.name for row in table.rows] == ["host-n0", "host-n1"]
    assert [host.devices for host in run.hosts] == [[], ["0: H200"]]


def test_hosts_of_the_same_name_are_two(tmp_path):
    lines = [process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), boot=f"n{rank}") for rank in range(2)]
    for each in lines:
        each[0]["host"] = "box"
    assert "2 ranks on 2 hosts named box" in headline(found_in(write(tmp_path, *lines)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a time namespace")
def test_a_time_namespace_has_a_clock_of_its_own():
    show = [sys.executable, "-c", "from steptime.attach.record_file import boot_id; print(boot_id())"]
    words = ["unshare", "--time", "--monotonic", "1000", "--fork", *show]
    here, there = (subprocess.run(each, capture_output=True, text=True, check=False) for each in (show, words))
    if there.returncode:
        pytest.skip(there.stderr.strip())
    assert there.stdout.strip() == f"{here.stdout.strip()}+1000.0"
