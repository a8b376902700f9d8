"""Launches of a stand-in framework, started by hand under every Python."""

import itertools

import pytest
from standin import SCHEDULE, fill_standin, finish, play, start

TWO = {"STEPTIME_ROLE": "worker", "STEPTIME_WORKERS": "2"}


def test_a_timed_worker_writes_every_record_in_its_order(python, tmp_path):
    played = play(python, fill_standin(tmp_path))
    assert played.code == 0, played.stderr
    assert played.kinds == ["process", "session", "warmup", "steps", "threads", "done"]


@pytest.mark.sampled
def test_ends_of_steps_rise_and_are_as_far_apart_as_the_steps_take(python, tmp_path):
    played = play(python, fill_standin(tmp_path, sleep_s=0.005))
    steps = played.record("steps")
    ends = [*played.record("warmup")["ends_s"], steps["origin_s"], *steps["ends_s"]]
    assert len(ends) >= SCHEDULE["warmup_steps"] + 1 + SCHEDULE["min_steps"]
    assert min(later - earlier for earlier, later in itertools.pairwise(ends)) >= 0.005


@pytest.mark.sampled
def test_two_workers_time_the_same_number_of_steps_though_one_is_slower(python, tmp_path):
    run = fill_standin(tmp_path, slow_rank=1)
    processes = [start(python, run, STEPTIME_RANK=str(rank), **TWO) for rank in range(2)]
    played = [finish(process, run, f"worker-{rank}") for rank, process in enumerate(processes)]
    assert [each.code for each in played] == [0, 0], [each.stderr for each in played]
    counts = {len(each.record("steps")["ends_s"]) for each in played}
    assert len(counts) == 1
    assert SCHEDULE["min_steps"] <= counts.pop() <= SCHEDULE["max_steps"]


@pytest.mark.sampled
def test_a_failed_step_leaves_its_cause_in_the_records_and_on_standard_error(python, tmp_path):
    run = fill_standin(tmp_path, fail_at=2)
    played = play(python, run)
    error = played.record("error")
    assert played.code == 1
    assert (error["error"], error["message"]) == ("RuntimeError", "the stand-in fails at step 2")
    assert 'raise RuntimeError("the stand-in fails' in error["traceback"]
    assert error["traceback"].strip() in played.stderr
    assert "done" not in played.kinds


@pytest.mark.sampled
def test_a_failed_worker_aborts_its_session_and_does_not_close_it(python, tmp_path):
    run = fill_standin(tmp_path, fail_at=2)
    play(python, run)
    assert (run / "aborted-0").exists()
    assert not (run / "closed-0").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_other_roles_serve_and_train_nothing(python, tmp_path, role):
    run = fill_standin(tmp_path)
    played = play(python, run, role, STEPTIME_ROOT_ADDRESS="127.0.0.1:4321")
    assert (played.code, played.kinds) == (0, ["process", "threads"]), played.stderr
    assert (run / f"served-{role}-0").read_text() == "127.0.0.1:4321"
