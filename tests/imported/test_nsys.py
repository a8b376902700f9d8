"""Exports of Nsight Systems become steps of each device, read by the tables and columns that are there."""

import json
import sqlite3

import pytest

from steptime.cli.app import run_program
from steptime.errors import FileError, UsageError
from steptime.imported.nsys import read_nsys

STEPS, STEP = 12, 1_000_000
PROCESS = 7 << 24
PLANTED = {"forward": 200.0, "compute": 100.0, "update": 50.0, "collective": 80.0, "copy": 20.0}
"""Of a step of the first device, in microseconds; 20 more of the communication are hidden."""


def write(path, *, ranks=1, steps="step {}", text_ids=False, leave=(), without=()):  # noqa: PLR0913 - what exports differ in
    """Write an export; ``leave`` out tables, and ``without`` columns."""
    strings: dict[str, int] = {}
    rows = {"CUPTI_ACTIVITY_KIND_KERNEL": [], "CUPTI_ACTIVITY_KIND_MEMCPY": [], "CUPTI_ACTIVITY_KIND_RUNTIME": [],
            "NVTX_EVENTS": []}  # fmt: skip

    def known(text):
        return strings.setdefault(text, len(strings) + 1)

    for rank in range(ranks):
        process = PROCESS + (rank << 24)

        def mark(text, begin, lasted, process=process):
            name = {"text": None, "textId": known(text)} if text_ids else {"text": text, "textId": None}
            rows["NVTX_EVENTS"].append({"start": begin, "end": begin + lasted, "globalTid": process + 3, **name})

        for number in range(STEPS):
            at = 5_000_000 + number * STEP
            late = 60_000 * rank
            if steps:
                mark(steps.format(number), at, STEP)
            mark("aten::addmm, seq = 4", at + 100_000, 20_000)
            mark("Optimizer.step#SGD.step", at + 300_000, 100_000)
            mark("DataLoader of the script", at, 5_000)
            kernels = [
                ("gemm", 110_000, 110_000, 200_000), ("other", 150_000, 310_000, 100_000 + late),
                ("ncclDevKernel_AllReduce", 160_000, 390_000 + late, 100_000 - late),
                ("multi_tensor_apply", 350_000, 500_000, 50_000),
            ]  # fmt: skip
            for index, (name, launch, begin, lasted) in enumerate(kernels):
                correlation = 4 * number + index
                rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                    {"start": at + launch, "end": at + launch + 900, "globalTid": process + 3,
                     "correlationId": correlation}
                )  # fmt: skip
                rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
                    {"start": at + begin, "end": at + begin + lasted, "deviceId": rank, "globalPid": process,
                     "correlationId": correlation, "shortName": known(name)}
                )  # fmt: skip
            rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
                {"start": at + 600_000, "end": at + 620_000, "deviceId": rank, "globalPid": process,
                 "correlationId": 900 + number}
            )  # fmt: skip
    rows["StringIds"] = [{"id": number, "value": text} for text, number in strings.items()]
    with sqlite3.connect(path) as database:
        for table, own in rows.items():
            columns = [name for name in own[0] if name not in without] if table not in leave else []
            if columns:
                database.execute(f"CREATE TABLE {table} ({', '.join(map(repr, columns))})")
                marks = ", ".join("?" for _ in columns)
                database.executemany(
                    f"INSERT INTO {table} VALUES ({marks})",  # noqa: S608 - names of ours
                    [[row[name] for name in columns] for row in own],
                )
    database.close()
    return path


def parts_of(source, rank=0):
    """Return the mean parts of a rank's steps in microseconds."""
    steps = source.processes[rank].steps
    names = {name for step in steps for name in step.regions}
    return {name: sum(step.regions.get(name, 0) for step in steps) / len(steps) / 1e3 for name in names}


FORMS = {
    "as written": {},
    "names by number": {"text_ids": True},
    "ranges of the profiler": {"steps": "ProfilerStep#{}"},
    "ranges of a script": {"steps": "train_step: {}"},
    "without processes": {"without": ("globalPid",)},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_step_has_the_parts_that_were_planted(form, tmp_path):
    source = read_nsys(write(tmp_path / "a.sqlite", **FORMS[form]))
    assert {step.duration_ns for step in source.processes[0].steps} == {STEP}
    assert parts_of(source) == pytest.approx(PLANTED)


def test_two_devices_are_two_ranks_whose_collectives_are_divided(tmp_path, capsys):
    path = write(tmp_path / "a.sqlite", ranks=2)
    assert run_program(["import", str(path), "-o", str(tmp_path / "out"), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["attached"]
    parts = {part["name"]: part for part in run["parts"]}
    assert run["world"] == 2
    assert parts["sync_wait"]["ranks_s"] == pytest.approx([40e-6, 0.0], abs=1e-9)
    assert parts["comm_exposed"]["ranks_s"] == pytest.approx([40e-6, 20e-6], abs=1e-9)
    assert "2 devices" in run["notes"][0]


def test_without_marked_steps_updates_make_them(tmp_path):
    steps = read_nsys(write(tmp_path / "a.sqlite", steps="")).processes[0].steps
    assert [step.duration_ns for step in steps] == [STEP] * (STEPS - 1)


def test_without_ranges_shares_of_the_time_are_known_and_steps_null_with_the_reason(tmp_path):
    source = read_nsys(write(tmp_path / "a.sqlite", leave=("NVTX_EVENTS",)))
    assert "nvtx.range" in source.unknown["step_s"]
    span = 11 * STEP + 620_000 - 110_000
    assert source.values["computing_share"] == pytest.approx(12 * 350_000 / span)
    assert source.values["exposed_communication_share"] == pytest.approx(12 * 80_000 / span)


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds"])
def test_steps_are_read_without_tables_that_they_can_do_without(table, tmp_path):
    assert len(read_nsys(write(tmp_path / "a.sqlite", leave=(table,))).processes[0].steps) == STEPS


def test_nothing_is_written_beside_the_file(tmp_path):
    path = write(tmp_path / "a.sqlite")
    before = path.read_bytes()
    read_nsys(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.sqlite"]
    assert path.read_bytes() == before


def view(path):
    """Write a database whose kernels are a view, which could run without end."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end")
    database.close()


HOSTILE = {
    "cut": (lambda path: path.write_bytes(write(path.with_name("b")).read_bytes()[:9000]), FileError, "not a whole"),
    "a name alone": (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000), FileError, "not a whole"),
    "a view": (view, UsageError, "no kernels"),
    "no kernels": (lambda path: write(path, leave=("CUPTI_ACTIVITY_KIND_KERNEL",)), UsageError, "no kernels"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_a_sentence(name, tmp_path):
    make, error, sentence = HOSTILE[name]
    make(tmp_path / "a.sqlite")
    with pytest.raises(error, match=sentence):
        read_nsys(tmp_path / "a.sqlite")
