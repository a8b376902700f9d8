"""What PyTorch shows of its own exchanges in marked steps."""

import pytest
from ablating import breakdown, by_step, marked_blocks

pytestmark = pytest.mark.framework("pytorch")


def test_small_buckets_of_ddp_are_ready_in_the_backward_pass_one_after_the_other(tmp_path):
    for seen in breakdown(tmp_path, "pytorch", "allreduce", options={"bucket_mb": 0.05}):
        for ends, pieces in by_step(seen):
            assert [piece[0] for piece in pieces] == [f"bucket {index}" for index in range(len(pieces))]
            assert len(pieces) > 1
            assert all(ends["forward"] <= ready <= ends["backward"] for _, _, ready, _ in pieces)
            assert all(done <= ends["exchange"] for _, _, _, done in pieces)


def test_one_bucket_of_ddp_is_ready_when_the_backward_pass_ends(tmp_path):
    for seen in breakdown(tmp_path, "pytorch", "allreduce"):
        for ends, pieces in by_step(seen):
            assert len(pieces) == 1
            assert pieces[0][3] > pieces[0][2] == ends["backward"]


def test_fsdp_gathers_weights_before_it_sends_gradients(tmp_path):
    for seen in breakdown(tmp_path, "pytorch", "fsdp"):
        kinds = [piece[0].split()[0] for piece in seen["transfers"]]
        assert kinds[0] == "weights"
        assert kinds.count("gradients") == len(seen["marked"])


def test_ddps_own_log_tells_of_marked_steps_alone_and_no_more_than_the_marks_hold(tmp_path):
    for seen in breakdown(tmp_path, "pytorch", "allreduce", options={"bucket_mb": 0.05}):
        for told, steps in zip(seen["native"], marked_blocks(seen), strict=True):
            log = told["DDP log"]
            assert set(log) == {"forward", "backward", "comm_exposed + sync_wait"}
            assert all(seconds > 0.0 for seconds in log.values())
            assert sum(log.values()) < steps["forward"] + steps["backward"] + steps["exchange"]


def test_without_ddp_there_is_no_log_of_its_own(tmp_path):
    for seen in breakdown(tmp_path, "pytorch", "fsdp"):
        assert not any(seen["native"])
