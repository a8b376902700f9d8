"""Buckets of DistributedDataParallel, compared with those that torch was seen to make."""

import pytest
from small_works import lenet5, mlp, small_alexnet

from steptime.model.policies import step_graph
from steptime.worker.communication import PolicyContext


def _buckets(work, **options):
    graph = step_graph(work, "pytorch", "allreduce", PolicyContext(options=options))
    return [message.bytes for message in graph.messages]


@pytest.mark.parametrize(
    ("work", "seen"),
    [
        (lenet5(), [246_824]),
        (mlp(), [4_239_400, 3_215_360]),
        (small_alexnet(), [4_601_384, 1_543_296]),
    ],
    ids=["lenet5", "mlp", "small_alexnet"],
)
def test_buckets_are_those_that_torch_makes_by_itself(work, seen):
    assert _buckets(work) == seen


@pytest.mark.parametrize(
    ("size", "seen"), [(25.0, [4_239_400, 3_215_360]), (24.0, [7_454_760]), (1.0, [4_239_400, 3_215_360])]
)
def test_a_size_that_is_asked_for_holds_for_the_first_bucket_too(size, seen):
    assert _buckets(mlp(), bucket_mb=size) == seen


def test_a_bucket_can_go_with_its_last_gradient():
    graph = step_graph(mlp(), "pytorch", "allreduce", PolicyContext())

    assert [graph.work.layers[message.after].name for message in graph.messages] == ["fc2", "fc1"]


def test_gloo_works_on_two_buckets_at_once_and_nccl_on_one():
    plans = {
        device: step_graph(mlp(), "pytorch", "allreduce", PolicyContext(device=device)).plan.in_flight
        for device in ("cpu", "cuda")
    }

    assert plans == {"cpu": 2, "cuda": 1}
