"""What DeepSpeed shows of its own exchanges in marked steps."""

import pytest
from dissecting import anatomy, by_step

pytestmark = pytest.mark.framework("deepspeed")


def test_smaller_buckets_of_deepspeed_are_all_sent_after_the_backward_pass(tmp_path):
    for seen in anatomy(tmp_path, "deepspeed", "allreduce", options={"bucket_values": 20000}):
        for ends, pieces in by_step(seen):
            assert all(ends["backward"] <= ready for _, _, ready, _ in pieces)
            assert all(done <= ends["exchange"] for _, _, _, done in pieces)
