"""What the records of a launch say beside their numbers."""

import json
import math
import traceback
from pathlib import Path
from typing import Any

import pytest

from steptime.execution.collected import Collected, collect


@pytest.mark.parametrize(("loss", "diverged"), [(0.5, False), (1e30, False), (math.nan, True), (math.inf, True)])
def test_a_loss_that_is_no_number_is_seen_on_whichever_worker_it_is(tmp_path: Path, loss: float, diverged: bool):
    for rank, value in enumerate((0.5, loss)):
        records = [{"kind": "warmup", "loss": 2.0}, {"kind": "steps", "loss": value}]
        (tmp_path / f"worker-{rank}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert collect(tmp_path).diverged() is diverged


def test_a_launch_that_timed_nothing_did_not_diverge(tmp_path: Path):
    (tmp_path / "worker-0.jsonl").write_text('{"kind": "process", "pid": 1}')
    assert not collect(tmp_path).diverged()


def test_the_first_error_is_that_of_the_right_time_where_the_clock_of_a_host_is_wrong():
    def failed(host: str, at_wall_s: float, message: str) -> dict[str, dict[str, Any]]:
        error = {"error": "OSError", "message": message, "at_s": 0.0, "at_wall_s": at_wall_s}
        return {"process": {"host": host}, "error": error}

    found = Collected({"worker-0": failed("n0", 1000.2, "peer gone"), "worker-1": failed("n1", 1300.0, "no memory")})

    assert found.first_error({"n0": 0.0, "n1": 300.0}) == "worker-1: OSError: no memory"


def attribute():
    return "a text".forward


def name():
    return undefined  # noqa: F821 - the mistake


def key():
    return json.loads("{}")["weights"]


def inside_a_library():
    return json.loads(5)  # fails in a file of the standard library


@pytest.mark.parametrize(
    ("mistake", "place"),
    [
        (attribute, 'in attribute: return "a text".forward)'),
        (name, "in name: return undefined  # noqa: F821 - the mistake)"),
        (key, 'in key: return json.loads("{}")["weights"])'),
        (inside_a_library, "in inside_a_library: return json.loads(5)  # fails in a file of the standard library)"),
    ],
)
def test_a_mistake_of_code_has_its_file_and_line(mistake, place):
    try:
        mistake()
    except Exception as error:  # noqa: BLE001 - as the worker does
        told = {"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc(), "at_s": 0.0}
    line = mistake.__code__.co_firstlineno + 1

    reason = Collected({"worker-0": {"error": told}}).first_error()

    assert reason == f"worker-0: {told['error']}: {told['message']} (test_run_folder.py:{line} {place}"


@pytest.mark.parametrize("text", ["", "no traceback", 'File "x.py", line', "killed"])
def test_a_mistake_of_code_without_a_traceback_has_none(text):
    told = {"error": "TypeError", "message": "no", "traceback": text, "at_s": 0.0}
    assert Collected({"worker-0": {"error": told}}).first_error() == "worker-0: TypeError: no"


def test_an_error_that_is_no_mistake_of_code_is_as_it_was():
    told = {"error": "OSError", "message": "no", "traceback": '  File "x.py", line 3, in f\n', "at_s": 0.0}
    assert Collected({"worker-0": {"error": told}}).first_error() == "worker-0: OSError: no"
