"""Dumps of PyTorch's flight recorder and logs of the NCCL Inspector show collectives, and which ranks are behind."""

import json

import pytest

from steptime.cli.app import run_program


def dump(enqueued, completed, *, duration_ms=None, p2p=False, text=True):
    """Return a dump of one process group, in which numbers of the status are text as PyTorch writes them."""
    entries = [
        {
            "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number,
            "profiling_name": "nccl:all_reduce", "time_created_ns": 1_700_000_000_000_000_000 + number,
            "state": "completed" if number <= completed else "scheduled", "is_p2p": p2p,
            **({"duration_ms": duration_ms} if duration_ms else {}),
        }
        for number in range(max(1, enqueued - 3), enqueued + 1)
    ]  # fmt: skip
    numbers = {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
    status = {"0": {name: str(value) if text else value for name, value in numbers.items()}}
    configuration = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"version": "2.10", "pg_config": configuration, "pg_status": status, "entries": entries}


def inspected(rank, microseconds, *, indent=None, workers=2):
    """Return a log of the NCCL Inspector of one rank."""
    return "".join(
        json.dumps({
            "header": {"id": "0x7f", "rank": rank, "n_ranks": workers, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": f"n{rank}", "pid": 1},
            "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1024,
                          "coll_exec_time_us": lasted, "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 2.0},
        }, indent=indent) + "\n"
        for number, lasted in enumerate(microseconds)
    )  # fmt: skip


@pytest.fixture
def imported(tmp_path, capsys):
    """Return a function that imports texts by name and returns the run."""

    def run(**texts):
        for name, text in texts.items():
            (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
        files = [str(tmp_path / name) for name in texts]
        assert run_program(["import", *files, "-o", str(tmp_path / "out"), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["attached"]

    return run


@pytest.mark.parametrize("text", [False, True])
def test_the_rank_that_is_behind_is_named(text, imported):
    run = imported(dump_0=dump(40, 38, text=text), dump_1=dump(38, 38, text=text), dump_2=dump(40, 38, text=text))
    assert "0 default_pg: rank 1 enqueued 38 collectives, others up to 40" in run["notes"]
    assert "rank 0: enqueued and not completed: 2 of 0 default_pg from number 39" in run["notes"]


def test_ranks_that_came_as_far_are_not_compared(imported):
    run = imported(dump_0=dump(40, 40), dump_1=dump(40, 40))
    assert run["notes"] == []


def test_messages_between_two_ranks_are_not_compared(imported):
    run = imported(dump_0=dump(40, 40, p2p=True), dump_1=dump(30, 30, p2p=True))
    assert not [note for note in run["notes"] if "others up to" in note]


def test_a_rank_without_a_collective_is_named(imported):
    run = imported(dump_0=dump(40, 40), dump_1={**dump(1, 1), "entries": []})
    assert "rank 1: its flight recorder has no collective on record" in run["notes"]


def test_durations_count_where_they_are_and_are_null_with_the_reason_elsewhere(imported):
    one, other = imported(dump_0=dump(40, 40, duration_ms=2.0), dump_1=dump(40, 40))["imported"]
    assert one["values"]["communication_s"] == pytest.approx(8e-3)
    assert "TORCH_NCCL_ENABLE_TIMING" in other["unknown"]["communication_s"]


def test_records_of_collectives_show_no_step_with_the_reason(imported):
    run = imported(dump_0=dump(40, 40))
    assert run["step_s"]["value"] is None
    assert run["not_attached"] == "dump_0 has collectives alone, and no steps"


@pytest.mark.parametrize("indent", [None, 2])
def test_the_least_time_of_the_inspectors_ranks_is_transfer_and_the_rest_waiting(indent, imported):
    run = imported(a=inspected(0, [100.0, 50.0], indent=indent), b=inspected(1, [40.0, 50.0], indent=indent))
    first, second = (each["values"] for each in run["imported"])
    assert first["transfer_s"] == second["transfer_s"] == pytest.approx(90e-6)
    assert (first["waiting_s"], second["waiting_s"]) == pytest.approx((60e-6, 0.0))
    assert first["AllReduce_bus_bytes_per_s"] == pytest.approx(2e9)


HOSTILE = {
    "numbers as text": dump(40, 40) | {"pg_status": {"0": {"last_enqueued_collective": "9" * 400}}},
    "a list for a status": dump(40, 40) | {"pg_status": [1]},
    "entries that are none": dump(40, 40) | {"entries": [1, None, {"pg_id": [], "process_group": {}}]},
    "a rank beyond": inspected(5, [1.0]),
    "endless numbers": inspected(0, [1e308, 2.0]).replace('"coll_sn": 1', '"coll_sn": 1e400'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_a_sentence(name, tmp_path, capsys):
    text = HOSTILE[name]
    (tmp_path / "dump_0").write_text(text if isinstance(text, str) else json.dumps(text))
    code = run_program(["import", str(tmp_path / "dump_0"), "-o", str(tmp_path / "out")])
    assert code in {0, 2}
    assert "Traceback" not in capsys.readouterr().err
