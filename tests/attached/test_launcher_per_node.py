"""A launcher started on each node by an attach of its own: one shared folder, or one of each node, joined afterwards.

A launcher of this test leaves the records of its node; test_attached_nodes.py starts torchrun on two hosts.
"""

import json
import sys
import time

import pytest
from stored_processes import BEGIN, MS, ddp_steps, process_lines

from steptime.attach.record_file import boot_id
from steptime.attached.summary import attached_run
from steptime.results.joined_files import reported_folder
from steptime.results.store import Store
from steptime.runner.attached_folder import free_folder, joined_folder
from steptime.runner.attached_run import AttachedCommand
from steptime.runner.job_member import job_member

LAUNCHER = """#!{python}
import os, pathlib, shutil, sys
record = pathlib.Path(__file__).parent / f"rank-{{sys.argv[4]}}.jsonl"
shutil.copy(record, os.environ["STEPTIME_ATTACH"])
"""
OWN, SHARED = ("node-0", "node-1"), ("shared", "shared")


def late(number: int) -> list[float]:
    """Rank 1 is 20 ms late in three of four steps, rank 0 in the others."""
    return [0.0, 20.0] if number % 4 else [20.0, 0.0]


@pytest.fixture
def job(tmp_path):
    """Return what runs a job of two nodes into two results folders, and returns its end on each."""
    launcher = tmp_path / "torchrun"
    launcher.write_text(LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o700)

    def run(folders):
        prepared = []
        for rank, name in enumerate(folders):
            words = [str(launcher), *f"--nnodes 2 --node-rank {rank} --master-addr n0 train.py".split()]
            own, wanted = job_member(words, {}), tmp_path / name
            joined = joined_folder(wanted, own)
            command = AttachedCommand(words, joined or free_folder(wanted), None, flops=False)
            prepared.append(command.join(own) if joined else command.prepare())
        ahead_ms = (time.monotonic_ns() - BEGIN) / MS
        for rank in range(2):
            lines = process_lines(rank, 2, ddp_steps(rank, late, clock_ms=ahead_ms), boot=boot_id(), pid=100 + rank)
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (tmp_path / f"rank-{rank}.jsonl").write_text(text)
        return [command.run(lambda: None).code for command in prepared], [command.folder for command in prepared]

    return run


def report(*folders):
    with reported_folder(folders) as (base, recorded):
        return attached_run(*(recorded or Store.open(base).attached()))


def test_a_shared_folder_has_the_whole_answer(job):
    ends, folders = job(SHARED)
    assert ends == [0, 0]
    assert len(set(folders)) == 1
    found = report(folders[0])
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert (found.waited_for.rank, found.waited_for.part) == (1, "forward")


def test_folders_of_nodes_have_the_same_answer_when_joined(job):
    ends, folders = job(OWN)
    assert ends == [0, 0]
    assert len(set(folders)) == 2
    found = report(*folders)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert (found.waited_for.rank, found.waited_for.part) == (1, "forward")


def test_a_folder_of_one_node_lacks_the_other_rank(job):
    _, folders = job(OWN)
    assert [[rank.rank for rank in report(folder).ranks] for folder in folders] == [[0], [1]]
