"""Nodes of a job that wrote to folders of their own are joined by the report, with the error of their clocks."""

import io
import json
import sys
import tarfile
from pathlib import Path

import pytest
from program import steptime
from stored_processes import COMMAND, MS, ddp_steps, process_lines, write

from steptime.attached.summary import attached_run
from steptime.errors import StoreError, UsageError
from steptime.results.joined_files import reported_folder
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


def joined(*paths):
    """Return the header and the records that a report of these paths is of."""
    with reported_folder(paths) as (_, recorded):
        return recorded


def found_of(*paths):
    return attached_run(*joined(*paths))


def attached(*words) -> dict:
    done = steptime("report", *map(str, words), "--json", cwd=words[0])
    return json.loads(done.stdout)["attached"]


def a_tar(folder) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, "node")
    return packed.getvalue()


def test_one_node_alone_names_the_ranks_that_it_lacks(nodes):
    said = " ".join(steptime("report", str(nodes[0]), cwd=nodes[0]).stdout.split())
    assert "1 of 2 ranks on record" in said
    assert "nothing is known of rank 1 of 2" in said
    assert "steptime report DIR OTHER-DIR" in said


def test_folders_of_nodes_make_the_whole_answer(nodes):
    found = attached(*nodes)
    assert found["waited_for"]["rank"] == 1
    assert [rank["host"] for rank in found["ranks"]] == ["host-n0", "host-n1"]


def test_the_error_of_the_clocks_is_known(nodes):
    assert 0.0 < found_of(*nodes).clock_uncertainty_s < 0.02


def file_of(node):
    return next((node / "attached").glob("*.jsonl"))


def tar_of(node):
    path = node.with_suffix(".tgz")
    path.write_bytes(a_tar(node))
    return path


FORMS = {"folder": lambda node: node, "records": lambda node: node / "attached", "file": file_of, "tar": tar_of}


@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("first", FORMS)
def test_what_nodes_wrote_is_joined_in_each_form_and_place(nodes, first, second):
    run = found_of(FORMS[first](nodes[0]), FORMS[second](nodes[1]))
    assert [rank.host for rank in run.ranks] == ["host-n0", "host-n1"]
    assert run.waited_for.rank == 1


@pytest.mark.parametrize("place", [0, 1])
def test_a_node_comes_from_a_pipe(nodes, monkeypatch, place):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(a_tar(nodes[1]))))
    paths = [nodes[0]]
    paths.insert(place, Path("-"))
    assert found_of(*paths).waited_for.rank == 1


def test_the_command_of_a_tar_is_kept(nodes):
    assert joined(tar_of(nodes[0]), file_of(nodes[1]))[0].command == ["torchrun", "train.py"]


def test_the_page_of_a_tar_states_its_answer_once_and_names_the_tar(nodes, tmp_path):
    tar = tar_of(nodes[0])
    steptime("report", str(tar), "--html", str(tmp_path / "page.html"), cwd=nodes[0])
    page = (tmp_path / "page.html").read_text()

    assert page.partition('<div class="answer">')[2].partition("</div>")[0].count("a step takes") == 1
    assert page.count("a step takes") == 1
    assert f"steptime report {tar} --json" in page
    assert '<a href="#reading">input wait</a>' in page


def test_one_file_alone_has_a_report_that_begins_with_its_program(nodes):
    said = steptime("report", str(file_of(nodes[1])), cwd=nodes[0]).stdout
    assert said.startswith("script, 1 of 2 ranks on record, on 1 host")


def test_a_process_that_comes_twice_counts_once(nodes):
    assert len(joined(nodes[0], nodes[1], nodes[1])[1].processes) == 2


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8bcut"], ids=["empty", "text", "cut"])
@pytest.mark.parametrize("alone", [True, False])
def test_what_holds_no_records_is_named(nodes, tmp_path, content, alone):
    (tmp_path / "other.tar").write_bytes(content)
    with pytest.raises(StoreError, match=r"other\.tar holds no records"):
        joined(*([] if alone else nodes[:1]), tmp_path / "other.tar")


def test_a_folder_of_no_results_is_named_as_before(tmp_path):
    assert "not a results folder" in steptime("report", str(tmp_path), cwd=tmp_path, check=2).stderr


def test_a_study_is_not_joined(nodes, tmp_path):
    Store.create(tmp_path / "study", study_text="# own\n", study_json={"name": "own"})
    with pytest.raises(UsageError, match="study holds a study"):
        joined(tmp_path / "study", nodes[0])


def test_no_name_in_an_archive_leads_out_of_the_folder(nodes, tmp_path):
    packed = io.BytesIO()
    text = file_of(nodes[1]).read_bytes()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("../../outside-1.jsonl")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    (tmp_path / "evil.tar").write_bytes(packed.getvalue())
    assert len(joined(nodes[0], tmp_path / "evil.tar")[1].processes) == 2
    assert not list(tmp_path.parent.glob("outside*"))
