"""Steps as a trace that Perfetto opens."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from launch_phases import launch_of
from simulated import a_store, a_trial

from steptime.errors import UsageError
from steptime.exports.chrome_trace import export_traces, trace
from steptime.results.ablation_records import AblationLaunch, WorkerAblation

TRIAL = a_trial(workers=2, strategy="allreduce")
MARKS = ["input", "forward", "backward", "exchange", "update"]
ENDS = {0: [0.0, 0.001, 0.004, 0.010, 0.020, 0.021], 1: [0.0, 0.001, 0.005, 0.014, 0.020, 0.021]}
"""Of a step of both workers on one clock: worker 1 has its gradients 4 ms later."""
STEPS = 3
PIECES = [("bucket 0", 4096, 0.006, 0.015), ("bucket 1", 512, 0.008, 0.012), ("bucket 2", 64, 0.016, 0.019)]


def marked_launch(number=0, *, offset_s=100.0, rtt_s=0.0, hosts=("vm", "vm"), transfers=PIECES):
    """A launch with marks; the clock of worker 1 is ``offset_s`` behind that of worker 0."""
    plain = launch_of(number)
    workers = []
    for worker in plain.workers:
        late = 50.0 - offset_s * worker.rank
        clock = {"at_s": late, "offset_s": offset_s * worker.rank, "rtt_s": rtt_s * worker.rank}
        fields = {
            **vars(worker),
            "host": hosts[worker.rank],
            "clocks": [clock, {**clock, "at_s": late + 1.0}],
            "marks": MARKS,
            "marked": [[late + 0.03 * step + end for end in ENDS[worker.rank]] for step in range(STEPS)],
            "transfers": [
                (name, size, late + 0.03 * step + ready, late + 0.03 * step + done)
                for step in range(STEPS)
                for name, size, ready, done in transfers
            ],
        }
        workers.append(WorkerAblation(**fields))
    return AblationLaunch(**{**vars(plain), "workers": workers})


def rows_of(found):
    """Complete events by process and name of the row."""
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in found["traceEvents"]
        if event["name"] == "thread_name"
    }
    rows = defaultdict(list)
    for event in found["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return rows


MARKED = trace(TRIAL, [marked_launch()])
MADE_UP = trace(TRIAL, [launch_of(0), launch_of(1)])
BOTH = pytest.mark.parametrize("found", [MARKED, MADE_UP], ids=["marked", "made up"])


@BOTH
def test_every_event_says_what_when_and_where(found):
    for event in found["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert all(isinstance(event[key], (int, float)) for key in ("ts", "dur", "pid", "tid"))
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert event["name"]


@BOTH
def test_nothing_in_a_row_overlaps(found):
    for events in rows_of(found).values():
        for before, after in pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


@BOTH
def test_every_process_and_row_has_a_name(found):
    events = found["traceEvents"]
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named
    assert {event["pid"] for event in events} == {event["pid"] for event in events if event["name"] == "process_name"}


@BOTH
def test_a_trace_is_json(found):
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_each_worker_is_a_process():
    names = [event["args"]["name"] for event in MARKED["traceEvents"] if event["name"] == "process_name"]
    assert names == ["worker 0 on vm", "worker 1 on vm"]


def test_times_are_microseconds():
    forward = rows_of(MARKED)[0, "forward"][1]
    assert (forward["ts"], forward["dur"]) == pytest.approx((31000.0, 3000.0), abs=0.01)


def test_clocks_of_workers_are_aligned():
    rows = rows_of(MARKED)
    assert [event["ts"] for event in rows[1, "step"]] == pytest.approx([event["ts"] for event in rows[0, "step"]])


def test_an_exchange_is_split_where_the_last_worker_arrives():
    rows = rows_of(MARKED)
    wait, move = rows[0, "sync_wait"][0], rows[0, "comm_exposed"][0]
    assert (wait["ts"], wait["dur"]) == pytest.approx((10000.0, 4000.0), abs=0.01)
    assert (move["ts"], move["dur"]) == pytest.approx((14000.0, 6000.0), abs=0.01)


def test_the_last_worker_waits_for_nobody():
    assert all(event["dur"] == pytest.approx(0.0, abs=0.01) for event in rows_of(MARKED)[1, "sync_wait"])


def test_arrivals_closer_than_clocks_can_tell_are_not_split():
    found = rows_of(trace(TRIAL, [marked_launch(rtt_s=0.01, hosts=("h0", "h1"))]))
    assert (0, "sync_wait") not in found
    assert found[0, "exchange"][0]["dur"] == pytest.approx(10000.0, abs=0.01)


def test_asynchronous_workers_wait_for_nobody():
    found = rows_of(trace(a_trial(workers=2, strategy="ps_async"), [marked_launch()]))
    assert (0, "sync_wait") not in found
    assert found[0, "comm_exposed"][0]["dur"] == pytest.approx(10000.0, abs=0.01)


def test_transfers_have_their_bytes():
    pieces = [event for row, events in rows_of(MARKED).items() if "transfer" in row[1] for event in events]
    assert sum(event["args"]["bytes"] for event in pieces) == 2 * STEPS * (4096 + 512 + 64)


def test_transfers_under_way_together_have_rows_of_their_own():
    rows = rows_of(MARKED)
    assert [event["name"] for event in rows[0, "transfer 1"]][:2] == ["bucket 0", "bucket 2"]
    assert [event["name"] for event in rows[0, "transfer 2"]][:1] == ["bucket 1"]


def test_a_framework_without_transfers_has_no_such_rows():
    assert not any("transfer" in row for _, row in rows_of(trace(TRIAL, [marked_launch(transfers=[])])))


def test_without_marks_there_is_one_step_that_says_it_is_made_up():
    rows = rows_of(MADE_UP)
    (process,) = [event["args"]["name"] for event in MADE_UP["traceEvents"] if event["name"] == "process_name"]
    assert process == "mean of 2 workers: made up of mean phases, not recorded"
    assert [event["name"] for event in rows[0, "step"]] == ["step made up of mean phases"]
    assert rows[0, "forward"][0]["dur"] == pytest.approx(10000.0, rel=0.02)


def test_a_phase_that_nobody_knows_is_not_drawn():
    assert (0, "forward") not in rows_of(trace(TRIAL, [launch_of(0, drop=("forward",))]))


def test_a_trial_that_was_not_taken_apart_has_no_trace():
    assert trace(TRIAL, []) is None


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    for trial in (TRIAL, a_trial()):
        store.add_trial(trial)
    store.append(AblationLaunch(**{**vars(marked_launch(offset_s=0.0)), "trial": TRIAL.id}))
    return store


def test_each_trial_that_was_taken_apart_becomes_a_file(store, tmp_path):
    (path,) = export_traces(store, tmp_path / "new" / "folder")
    assert path.name == f"{TRIAL.id}.trace.json"
    assert json.loads(path.read_text())["otherData"]["trial"] == TRIAL.id


def test_an_unknown_trial_is_refused_with_the_choices(store, tmp_path):
    with pytest.raises(UsageError, match=f"unknown trial 'x'.*{TRIAL.id}"):
        export_traces(store, tmp_path, "x")


def test_a_trial_without_breakdown_is_refused_with_what_to_do(store, tmp_path):
    with pytest.raises(UsageError, match="run the study with breakdown=true"):
        export_traces(store, tmp_path, a_trial().id)
