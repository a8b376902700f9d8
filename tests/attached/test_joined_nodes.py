"""Nodes of a job that wrote to folders of their own are joined by the report, with the error of their clocks."""

import io
import json
import sys
import tarfile

import pytest
from program import steptime
from stored_processes import COMMAND, MS, ddp_steps, process_lines, write

from steptime.errors import StoreError
from steptime.results.joined_files import joined_files
from steptime.results.store import Store

AHEAD_MS = 70_000.0


def late(number: int) -> list[float]:
    return [0.0, 20.0] if number % 4 else [20.0, 0.0]


@pytest.fixture
def nodes(tmp_path):
    """Two results folders, whose clocks differ; rank 1 is 20 ms late in three of four steps."""
    folders = []
    for rank, ahead in ((0, 0.0), (1, AHEAD_MS)):
        lines = process_lines(rank, 2, ddp_steps(rank, late, clock_ms=ahead), boot=f"n{rank}")
        folder = tmp_path / f"node-{rank}"
        store = Store.create(folder, study_text="# own\n", study_json={"name": "own"})
        store.put(
            "attached",
            {
                "command": ["torchrun", "train.py"],
                "started_at": "2026-01-01T00:00:00+00:00",
                "boot": f"n{rank}",
                "begin_ns": COMMAND,
                "end_ns": COMMAND + 9000 * MS,
                "wall_minus_monotonic_ns": 0,
                "exit_code": 0,
            },
        )
        folders.append(write(folder, lines))
    return folders


def attached(*words) -> dict:
    done = steptime("report", *map(str, words), "--json", cwd=words[0])
    return json.loads(done.stdout)["attached"]


def a_tar(folder) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, "node")
    return packed.getvalue()


def test_one_node_alone_names_the_ranks_that_it_lacks(nodes):
    said = steptime("report", str(nodes[0]), cwd=nodes[0]).stdout
    assert "1 of 2 ranks on record" in said
    assert "nothing is known of rank 1 of 2" in " ".join(said.split())


def test_folders_of_nodes_make_the_whole_answer(nodes):
    found = attached(*nodes)
    assert found["waited_for"]["rank"] == 1
    assert [rank["host"] for rank in found["ranks"]] == ["host-n0", "host-n1"]


def test_the_error_of_the_clocks_is_known(nodes):
    assert 0.0 < attached(*nodes)["clock_uncertainty_s"] < 0.02


def test_a_file_of_another_node_is_enough(nodes):
    assert attached(nodes[0], next((nodes[1] / "attached").glob("*.jsonl")))["waited_for"]["rank"] == 1


def test_a_tar_of_another_node_is_enough(nodes, tmp_path):
    (tmp_path / "node.tgz").write_bytes(a_tar(nodes[1]))
    assert attached(nodes[0], tmp_path / "node.tgz")["waited_for"]["rank"] == 1


def test_another_node_comes_from_a_pipe(nodes, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(a_tar(nodes[1]))))
    assert attached(nodes[0], "-")["waited_for"]["rank"] == 1


def test_a_process_that_comes_twice_counts_once(nodes):
    own = Store.open(nodes[0]).attached()[1]
    assert len(joined_files(own, [nodes[0], nodes[1], nodes[1]]).processes) == 2


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8bcut"], ids=["empty", "text", "cut"])
def test_what_holds_no_records_is_named(nodes, tmp_path, content):
    (tmp_path / "other.tar").write_bytes(content)
    with pytest.raises(StoreError, match=r"other\.tar holds no records"):
        joined_files(Store.open(nodes[0]).attached()[1], [tmp_path / "other.tar"])


def test_no_name_in_an_archive_leads_out_of_the_folder(nodes, tmp_path):
    packed = io.BytesIO()
    text = next((nodes[1] / "attached").glob("*.jsonl")).read_bytes()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("../../outside-1.jsonl")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    (tmp_path / "evil.tar").write_bytes(packed.getvalue())
    assert len(joined_files(Store.open(nodes[0]).attached()[1], [tmp_path / "evil.tar"]).processes) == 2
    assert not list(tmp_path.parent.glob("outside*"))
