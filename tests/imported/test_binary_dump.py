"""Dumps of PyTorch's flight recorder in Python's binary form are read as JSON is; none of them runs code."""

import json
import pickle
import pickletools

import pytest
from test_collective_records import dump

from steptime.cli.app import run_program
from steptime.errors import UsageError
from steptime.imported.binary_dump import _PLAIN, _PlainReader, read_binary_object
from steptime.imported.source import LIMITS


class Named:
    """A class that a file may name."""


@pytest.fixture
def read(tmp_path):
    """Return a function that reads bytes as a dump."""

    def given(data):
        (tmp_path / "dump_0").write_bytes(data)
        return read_binary_object(tmp_path / "dump_0", LIMITS)

    return given


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_binary_dump_imports_as_its_json_does(protocol, tmp_path, capsys):
    answers = {}
    for name, write in (
        ("json", lambda own: json.dumps(own).encode()),
        ("binary", lambda own: pickle.dumps(own, protocol)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        paths = [folder / f"dump_{rank}" for rank in range(3)]
        for rank, path in enumerate(paths):
            path.write_bytes(write(dump(38 if rank == 1 else 40, 38)))
        assert run_program(["import", *map(str, paths), "-o", str(folder / "out"), "--json"]) == 0
        answers[name] = json.loads(capsys.readouterr().out)["attached"]
    assert answers["binary"]["notes"] == answers["json"]["notes"]
    assert "0 default_pg: rank 1 enqueued 38 collectives, others up to 40" in answers["binary"]["notes"]


def test_values_repeated_in_a_dump_are_read_where_they_are_repeated(read):
    frames = [{"name": "all_reduce", "line": 3245}]
    assert read(pickle.dumps({"entries": [{"frames": frames}, {"frames": frames}]}, 2)) == {
        "entries": [{"frames": frames}, {"frames": frames}]
    }


@pytest.mark.parametrize("name", sorted({each.name for each in pickletools.opcodes} - _PLAIN))
def test_an_instruction_that_plain_values_do_not_need_is_refused(name, read):
    (code,) = (each.code for each in pickletools.opcodes if each.name == name)
    with pytest.raises(UsageError, match=r"is not read"):
        read(b"\x80\x02" + code.encode("latin-1") + b"\x01\x00\x00\x00\x00\x00\x00\x00\n0\n0\n.")


@pytest.mark.parametrize("value", [{"entries": Named()}, {"entries": Named}, {"entries": {1, 2}}, {"entries": b"1"}])
def test_an_object_or_a_class_is_refused_with_the_instruction(value, read):
    with pytest.raises(UsageError, match="which plain values do not need, and which could run code"):
        read(pickle.dumps(value, 4))


def test_the_reader_alone_looks_up_no_name(tmp_path):
    path = tmp_path / "named"
    path.write_bytes(pickle.dumps(Named, 2))
    with path.open("rb") as file, pytest.raises(pickle.UnpicklingError, match=r"it names .*Named"):
        _PlainReader(file).load()


def nested(deep):
    value: list = []
    for _ in range(deep):
        value = [value]
    return value


REFUSED = {
    "deep": (pickle.dumps({"entries": nested(80)}, 2), "nested more than 50 deep"),
    "a long whole number": (pickle.dumps({"entries": 1 << 70}, 2), "whole number of 71 bits"),
    "a list": (pickle.dumps([1], 2), "of a list and not of a dict"),
    "cut": (pickle.dumps({"entries": [1, 2]}, 2)[:-4], "is not read"),
    "remembered out of turn": (b"\x80\x02}q\x63.", "which no writer does"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_dump_holds_is_refused_in_a_sentence(name, read):
    data, why = REFUSED[name]
    with pytest.raises(UsageError, match=why):
        read(data)


def test_parts_are_counted_as_often_as_they_are_repeated(read, monkeypatch):
    monkeypatch.setattr("steptime.imported.binary_dump._MOST_PARTS", 150)
    once = [0] * 10
    data = pickle.dumps({"entries": [once] * 20}, 2)
    with pytest.raises(UsageError, match="more than 150 values"):
        read(data)
