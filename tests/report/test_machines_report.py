"""Results folders of several machines make one table, in which each machine is ranked by itself."""

import json

import polars as pl
import pytest
from launches import filled_store
from typer.testing import CliRunner

from steptime.analysis.machines import folders_by_machine
from steptime.cli.app import app, run_program
from steptime.results.store import Store

FACTS = {"hostname": "lab", "id": None, "cpu": "EPYC", "cores": 8, "memory_bytes": 2**35, "gpus": [], "steptime": "1.0"}


def study(path, **facts):
    """Return a results folder of two frameworks on a machine with these facts."""
    filled_store(path).set_machine({**FACTS, **facts})
    return path


def empty(path, **facts):
    """Return a results folder without trials."""
    Store.create(path, study_text="# none\n", study_json={"name": "none"}).set_machine({**FACTS, **facts})
    return path


def own_run(path, ranks=(0,), world=1, boot="b", imported=False):
    """Return a results folder of an attached run, which holds some ranks of its job."""
    store = Store.create(path, study_text="# own\n", study_json={"name": "own"})
    store.set_machine({**FACTS, "hostname": path.name})
    store.put("attached", {
        "command": ["python", "train.py"], "started_at": "2026-01-01T00:00:00+00:00", "boot": boot, "begin_ns": 0,
        "end_ns": 10**9, "wall_minus_monotonic_ns": 0, "exit_code": 0,
        "imported": [{"path": "a.log", "importer": "megatron", "sha256": "0"}] if imported else [],
    })  # fmt: skip
    (path / "attached").mkdir()
    for rank in ranks:
        clock = {"wall_ns": 0, "monotonic_ns": 0}
        lines = [
            {"kind": "process", "format": 1, "host": path.name, "pid": 7 + rank, "begin_ns": 0, "clock": clock,
             "boot": boot, "program": ["train.py"]},
            {"kind": "rank", "rank": rank, "world": world, "by": "gloo"},
            *({"kind": "step", "number": n, "begin_ns": n * 10**7, "duration_ns": 10**7} for n in range(20)),
        ]  # fmt: skip
        (path / "attached" / f"{rank}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def names(*stores):
    return [each.machine for each in folders_by_machine([Store.open(path) for path in stores])]


@pytest.fixture
def two(tmp_path):
    return study(tmp_path / "a"), study(tmp_path / "b", cpu="Xeon", cores=4)


def test_each_machine_has_a_first_place_of_its_own(two):
    lines = run("report", *two).splitlines()
    assert lines[0] == "2 machines, 2 results folders"
    for machine in ("lab (EPYC, 8 cores)", "lab (Xeon, 4 cores)"):
        assert [line.split()[0] for line in lines if line[:1].isdigit() and f" {machine} " in line] == ["1", "2"]


def test_the_table_of_a_group_has_the_machine_as_a_column(two):
    text = run("report", *two, "--format", "markdown")
    assert text.count("| machine |") == 1


def test_a_page_of_several_machines_has_their_table(two, tmp_path):
    run("report", *two, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "2 machines, 2 results folders" in page
    assert all(machine in page for machine in ("lab (EPYC, 8 cores)", "lab (Xeon, 4 cores)"))


def test_json_has_the_report_of_each_machine(two):
    found = json.loads(run("report", *two, "--json"))["machines"]
    alone = json.loads(run("report", two[1], "--json"))
    assert [each["machine"] for each in found] == ["lab (EPYC, 8 cores)", "lab (Xeon, 4 cores)"]
    assert found[1]["report"]["ranking"] == alone["ranking"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"hostname": "n1"}, {"hostname": "n2"}, ["n1", "n2"]),
        ({}, {"gpus": [{"name": "H200"}]}, ["lab", "lab (H200)"]),
        ({"id": "aaaaaaaaa"}, {"id": "bbbbbbbbb"}, ["lab aaaaaa", "lab bbbbbb"]),
        ({"id": "a"}, {"id": "a", "kernel": "6.1"}, ["lab", "lab"]),
        ({"id": "a"}, {"id": "a", "hostname": "3f2a", "quota_cores": 2}, ["lab", "lab"]),
        ({"id": "a"}, {"id": "a", "cpu": "Xeon"}, ["lab (EPYC)", "lab (Xeon)"]),
        ({"id": "a"}, {"id": "a", "hostname": "n2", "architecture": "aarch64"}, ["lab", "n2"]),
        ({"memory_bytes": 2**34}, {}, ["lab (16 GiB)", "lab (32 GiB)"]),
        ({}, {}, ["lab", "lab"]),
    ],
)  # fmt: skip
def test_machines_are_told_apart_by_the_facts_in_which_they_differ(one, other, expected, tmp_path):
    assert names(empty(tmp_path / "a", **one), empty(tmp_path / "b", **other)) == expected


def test_folders_of_one_machine_are_behind_one_another(tmp_path):
    folders = [empty(tmp_path / name, id=own) for name, own in (("a", "1"), ("b", "2"), ("c", "1"))]
    assert names(*folders) == ["lab 1", "lab 1", "lab 2"]
    assert f"({folders[2]})" in run("report", *folders)


def test_machines_without_facts_have_the_names_of_their_folders(tmp_path):
    for name in ("a", "b"):
        Store.create(tmp_path / name, study_text="", study_json={"name": name})
    assert names(tmp_path / "a", tmp_path / "b") == ["a", "b"]


def test_runs_that_hold_all_their_ranks_are_of_several_machines(tmp_path):
    text = run("report", own_run(tmp_path / "n1", boot="x"), own_run(tmp_path / "n2", (0, 1), 2, boot="y"))
    assert text.startswith("2 machines, 2 results folders")
    assert "10.0 ms" in text


def test_imported_logs_of_one_rank_are_runs_of_their_own(tmp_path):
    folders = [own_run(tmp_path / name, (0,), 16, boot=name, imported=True) for name in ("n1", "n2")]
    assert run("report", *folders).startswith("2 machines")


def test_folders_that_lack_ranks_of_one_another_are_joined(tmp_path):
    folders = [own_run(tmp_path / f"n{rank}", (rank,), 2) for rank in (0, 1)]
    assert "2 ranks" in run("report", *folders).splitlines()[0]


def test_a_study_and_an_attached_run_are_refused_by_name(tmp_path, capsys):
    assert run_program(["report", str(empty(tmp_path / "a")), str(own_run(tmp_path / "b"))]) == 2
    assert "name folders of one kind" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--what-if"], ["--figures", "x"], ["--to", "mlflow"]])
def test_an_option_of_one_folder_is_refused_for_several(option, tmp_path, capsys):
    assert run_program(["report", *(str(empty(tmp_path / name)) for name in "ab"), *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_tables_of_several_folders_begin_with_the_machine(two, tmp_path):
    run("export", *two, "--to", "csv", "-o", tmp_path / "out")
    trials = pl.read_csv(tmp_path / "out" / "trials.csv")
    assert trials.columns[:3] == ["machine", "folder", "id"]
    assert trials["machine"].value_counts()["count"].to_list() == [2, 2]
    assert pl.read_csv(tmp_path / "out" / "steps.csv")["machine"].n_unique() == 2


def test_compare_names_the_versions_of_steptime_of_attached_runs(tmp_path):
    folders = [own_run(tmp_path / name, boot=name) for name in ("n1", "n2")]
    (folders[1] / "machine.json").write_text(json.dumps({**FACTS, "steptime": "2.0"}))
    text = (folders[1] / "attached" / "0.jsonl").read_text()
    (folders[1] / "attached" / "0.jsonl").write_text(text.replace("10000000}", "10000001}"))
    changed = json.loads(run("compare", *folders, "--json"))["software"]
    assert {"fact": "steptime", "first": "1.0", "second": "2.0"} in changed
