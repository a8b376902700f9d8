"""What DeepSpeed shows of its own exchanges in marked steps."""

import pytest
from ablating import breakdown, by_step, marked_blocks

pytestmark = pytest.mark.framework("deepspeed")


def test_smaller_buckets_of_deepspeed_are_all_sent_after_the_backward_pass(tmp_path):
    for seen in breakdown(tmp_path, "deepspeed", "allreduce", options={"bucket_values": 20000}):
        for ends, pieces in by_step(seen):
            assert all(ends["backward"] <= ready for _, _, ready, _ in pieces)
            assert all(done <= ends["exchange"] for _, _, _, done in pieces)


def test_deepspeeds_timers_tell_of_marked_steps_alone_and_no_more_than_the_marks_hold(tmp_path):
    for seen in breakdown(tmp_path, "deepspeed", "allreduce"):
        for told, steps in zip(seen["native"], marked_blocks(seen), strict=True):
            timers = told["DeepSpeed timers"]
            assert set(timers) == {"forward", "backward", "comm_exposed + sync_wait", "update"}
            assert all(seconds > 0.0 for seconds in timers.values())
            assert sum(timers.values()) < sum(steps.values())


def test_timers_of_zero_cover_phases_together_since_it_sends_in_all_of_them(tmp_path):
    for seen in breakdown(tmp_path, "deepspeed", "zero3"):
        for told in seen["native"]:
            (phases,) = told["DeepSpeed timers"]
            assert phases == "forward + backward + comm_exposed + sync_wait + update"
            assert told["DeepSpeed timers"][phases] > 0.0


def test_deepspeed_prints_no_breakdown(tmp_path):
    breakdown(tmp_path, "deepspeed", "allreduce")
    said = "".join(path.read_text() for path in tmp_path.glob("launch-0/worker-*.???"))
    assert "time (ms)" not in said
