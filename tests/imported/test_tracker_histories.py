"""Histories of W&B, MLflow and TensorBoard become steps, by the time between entries."""

import json
import struct

import pytest

from steptime.cli.app import run_program

EVERY, STEP_S, BEGAN = 10, 0.25, 1_700_000_000.0
ENTRIES = [(EVERY * n, BEGAN + EVERY * n * STEP_S) for n in range(1, 14)]


def varint(value):
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number, kind, data):
    return varint(number << 3 | kind) + (varint(len(data)) + data if kind == 2 else data)


def event(step, at, tag):
    value = field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", 0.5))
    summary = field(5, 2, field(1, 2, value))
    return field(1, 1, struct.pack("<d", at)) + field(2, 0, varint(step)) + summary


def record(data):
    return struct.pack("<QI", len(data), 0) + data + b"\0\0\0\0"


def events(entries=ENTRIES, more=()):
    first = record(field(1, 1, struct.pack("<d", BEGAN)) + field(3, 2, b"brain.Event:2"))
    return first + b"".join(record(event(step, at, "train/loss")) for step, at in entries) + b"".join(more)


def lines(header, row):
    return (header + "\n" + "".join(row.format(step=s, at=at, ms=round(at * 1000)) for s, at in ENTRIES)).encode()


HISTORIES = {
    "wandb": lines("_runtime,_step,_timestamp,train/loss", "{at:.3f},{step},{at:.3f},0.5\n"),
    "wandb with an index": lines(",train/loss,_step,_timestamp", "0,0.5,{step},{at:.3f}\n"),
    "mlflow": lines("key,value,timestamp,step", "loss,0.5,{ms},{step}\n"),
    "mlflow of a file store": "".join(f"{round(at * 1000)} 0.5 {step}\n" for step, at in ENTRIES).encode(),
    "tensorboard-table": lines("Wall time,Step,Value", "{at:.3f},{step},0.5\n"),
    "tensorboard": events(),
    "tensorboard of a running job": events()[:-9],
    "tensorboard with evaluations": events(more=[record(event(33, BEGAN + 8.6, "eval/loss"))]),
}


@pytest.mark.parametrize("form", HISTORIES)
def test_a_history_shows_the_step_between_its_entries(form, tmp_path, capsys):
    (tmp_path / "history").write_bytes(HISTORIES[form])
    assert run_program(["import", str(tmp_path / "history"), "-o", str(tmp_path / "out"), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["attached"]
    assert run["imported"][0]["importer"] == form.partition(" ")[0].removesuffix("-table")
    assert run["step_s"]["value"] == pytest.approx(STEP_S, rel=1e-3)
    assert run["spread"] is None, "entries are means of several steps"
    assert "workers" in run["imported"][0]["unknown"]


def test_an_event_file_that_tensorboard_wrote_is_read(tmp_path):
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - only where it is installed
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 - likewise

    from steptime.imported.tracker_files import read_tensorboard  # noqa: PLC0415 - beside the above

    file = writer.EventFileWriter(str(tmp_path))
    for step, at in ENTRIES:
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])
        file.add_event(Event(wall_time=at, step=step, summary=summary))
    file.close()
    [process] = read_tensorboard(next(tmp_path.iterdir())).processes
    assert len(process.steps) == len(ENTRIES) - 1


HOSTILE = {
    "an endless record": events() + struct.pack("<QI", 1 << 60, 0),
    "steps that do not grow": lines("_step,_timestamp", "3,{at:.3f}\n"),
    "damaged fields": events(more=[record(b"\xff" * 40), record(b"\x2a\xff\x01")]),
    "not numbers": b"_step,_timestamp\nNaN,inf\n-1,1e400\n1e300,x\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_history_ends_in_a_sentence(name, tmp_path, capsys):
    (tmp_path / "history").write_bytes(HOSTILE[name])
    assert run_program(["import", str(tmp_path / "history"), "-o", str(tmp_path / "out")]) in {0, 2}
    assert "Traceback" not in capsys.readouterr().err
