"""The trace of an attached run has its steps, passes and evaluations on one clock."""

import json

import pytest
from program import process
from stored_processes import COMMAND, ddp_steps, process_lines, write

from steptime.results.store import Store


@pytest.fixture
def trace(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={"name": "attached"})
    header = {"command": ["x"], "started_at": "", "boot": "boot-0", "begin_ns": COMMAND, "wall_minus_monotonic_ns": 0}
    store.put("attached", header)
    write(tmp_path / "results", *(process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 15.0])) for rank in range(2)))
    process("export", "results", "--to", "chrome", cwd=tmp_path)
    return json.loads((tmp_path / "results" / "export" / "attached.trace.json").read_text())


def spans(trace, rank, name):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == rank and e["name"].startswith(name)]


def test_every_step_of_every_rank_is_a_span(trace):
    assert [len(spans(trace, rank, "step")) for rank in range(2)] == [40, 40]


def test_the_rank_that_waits_has_the_longer_exchange(trace):
    waiting, late = (spans(trace, rank, "exchange")[0]["dur"] for rank in range(2))
    assert (waiting, late) == (pytest.approx(19_000.0), pytest.approx(4_000.0))


def test_the_ends_of_an_exchange_are_one_moment_on_all_ranks(trace):
    ends = [spans(trace, rank, "exchange")[5] for rank in range(2)]
    assert ends[0]["ts"] + ends[0]["dur"] == pytest.approx(ends[1]["ts"] + ends[1]["dur"])
