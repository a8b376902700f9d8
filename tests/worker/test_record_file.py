"""The file into which a process writes what it saw."""

import json
from pathlib import Path

from standin import CORE, run_code

from steptime.worker import main as records
from steptime.worker.shared_file import RecordFile


def test_every_record_is_one_line_with_its_kind(tmp_path):
    file = RecordFile(str(tmp_path / "worker-0.jsonl"))
    file.write("warmup", ends_s=[1.5, 2.5], loss=0.25)
    file.write("done")
    file.close()
    lines = (tmp_path / "worker-0.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "warmup", "ends_s": [1.5, 2.5], "loss": 0.25},
        {"kind": "done"},
    ]


def test_text_with_line_ends_stays_on_one_line(tmp_path):
    file = RecordFile(str(tmp_path / "worker-0.jsonl"))
    file.write("error", traceback="first\nsecond\u2028third")
    file.close()
    (line,) = (tmp_path / "worker-0.jsonl").read_text().splitlines()
    assert json.loads(line)["traceback"] == "first\nsecond\u2028third"


def test_a_process_that_is_killed_loses_nothing_that_it_wrote(tmp_path):
    path = tmp_path / "worker-0.jsonl"
    code = f"""
        import os
        from steptime.worker.shared_file import RecordFile
        file = RecordFile({str(path)!r})
        for number in range(100):
            file.write("step", number=number)
        os._exit(0)  # as when it is killed, nothing is cleaned up
    """
    run_code(CORE, code, Path(records.__file__).parents[2])
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == list(range(100))


def test_a_second_start_by_hand_adds_to_the_file(tmp_path):
    for kind in ("first", "second"):
        file = RecordFile(str(tmp_path / "worker-0.jsonl"))
        file.write(kind)
        file.close()
    assert len((tmp_path / "worker-0.jsonl").read_text().splitlines()) == 2
