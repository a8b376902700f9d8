"""Numbers of frameworks' communication policies: what each option and each device changes."""

import pytest

from steptime.catalog.workloads.table import build_workload
from steptime.model.collectives import Link
from steptime.model.compute import work_of
from steptime.model.interconnect import Interconnect, communication_cost
from steptime.model.policies import step_graph
from steptime.worker.communication import PolicyContext

LENET5, MLP, RESNET50 = (work_of(build_workload(name)) for name in ("lenet5", "mlp", "resnet50"))


def _plan(work, framework, strategy, servers=2, device="cpu", **options):
    context = PolicyContext(workers=4, servers=servers, options=options, device=device, batch=32)
    return step_graph(work, framework, strategy, context).plan


def test_caffe_sums_layer_by_layer_when_asked():
    assert len(_plan(LENET5, "caffe", "allreduce").messages) == 1
    assert len(_plan(LENET5, "caffe", "allreduce", reduction="layerwise").messages) == 10


def test_tensorflow_packs_until_the_size_is_passed():
    sizes = [message.bytes for message in _plan(RESNET50, "tensorflow", "allreduce", pack_mb=4.0).messages]

    assert all(size > 4 * 2**20 for size in sizes[:-1])


def test_tensorflow_packs_all_together_with_zero():
    assert len(_plan(RESNET50, "tensorflow", "allreduce", pack_mb=0.0).messages) == 1


def test_jax_sends_small_gradients_together():
    sizes = sorted(message.bytes for message in _plan(LENET5, "jax", "allreduce", pack_kb=16).messages)

    assert sizes == [4 * (61_706 - 48_000 - 10_080), 4 * 10_080, 4 * 48_000]


def test_jax_sends_all_alone_with_zero():
    assert len(_plan(LENET5, "jax", "allreduce", pack_kb=0).messages) == 10


def test_chainermn_sends_gradients_one_by_one_on_processors_and_at_once_when_asked():
    assert len(_plan(LENET5, "chainer", "allreduce").messages) == 10
    assert len(_plan(LENET5, "chainer", "allreduce", communicator="flat").messages) == 1


def test_mxnet_cuts_large_arrays_into_parts_for_all_servers():
    messages = _plan(LENET5, "mxnet", "ps_sync", bigarray_bound=10_080).messages
    cut = {message.gradient_names[0] for message in messages if message.server is None}

    assert cut == {"fc1.weight", "fc2.weight"}


def test_mxnet_prefers_layers_that_are_used_first():
    messages = _plan(LENET5, "mxnet", "ps_sync").messages

    assert [message.priority for message in messages] == list(range(-9, 1))


def test_mxnet_sends_during_the_backward_pass_on_devices_alone():
    ends = {
        device: {message.after for message in _plan(LENET5, "mxnet", "ps_sync", device=device).messages}
        for device in ("cpu", "cuda")
    }

    assert ends["cpu"] == {0}
    assert len(ends["cuda"]) > 1


def test_pytorch_balances_servers_better_than_in_turn():
    def largest(sharding):
        messages = _plan(RESNET50, "pytorch", "ps_sync", servers=4, sharding=sharding).messages
        return max(message.bytes for message in messages)

    assert largest("balanced") < largest("round_robin")


def test_cntk_sends_what_is_small_at_once():
    alexnet = work_of(build_workload("alexnet"))
    messages = _plan(alexnet, "cntk", "allreduce").messages

    assert [message.gradient_names for message in messages[:-1]] == [("fc6.weight",), ("fc7.weight",)]
    assert len(_plan(LENET5, "cntk", "allreduce").messages) == 1


def test_one_bit_is_a_thirty_second():
    (message,) = _plan(MLP, "cntk", "onebit").messages

    assert message.bytes == pytest.approx(MLP.gradient_bytes / 32, abs=1)


def test_blocks_are_samples_of_all_workers():
    assert _plan(LENET5, "cntk", "block_momentum", block_size=1280).every == 10


def test_zero_sends_half_as_much_again_as_an_all_reduce():
    plan = _plan(RESNET50, "deepspeed", "zero2")

    assert [message.operation for message in (*plan.messages, *plan.after_update)] == ["allreduce", "all_gather"]
    assert plan.bytes == 2 * RESNET50.gradient_bytes


def test_zero3_gathers_large_weights_once_ahead_of_the_forward_pass_and_small_ones_one_by_one():
    """As counted in a step of DeepSpeed 0.19.8 (benchmarks/collectives/deepspeed.csv)."""
    plan = _plan(MLP, "deepspeed", "zero3")

    assert [(gather.bytes, gather.again) for gather in plan.gathers] == [(4 * 13_697_024, False)]
    assert len(plan.after_update) == 5
    assert sum(message.bytes for message in plan.after_update) == 4 * 17_418
    assert [(message.operation, message.bytes) for message in plan.messages] == [("allreduce", 4 * 13_714_442)]
    on_devices = _plan(MLP, "deepspeed", "zero3", device="cuda").messages
    assert [(message.operation, message.bytes) for message in on_devices] == [("reduce_scatter", 4 * 13_714_442)]


@pytest.mark.parametrize(("framework", "strategy"), [("pytorch", "fsdp"), ("deepspeed", "zero3")])
def test_gloo_scatters_by_reducing_the_whole_and_devices_do_not(framework, strategy):
    """As findings/gloo-reduce-scatter-sends-all.sh has it."""
    link = Interconnect(Link(1e9))
    taken = {}
    for device in ("cpu", "cuda"):
        plan = _plan(RESNET50, framework, strategy, device=device)
        assert sum(each.bytes for each in plan.messages) == RESNET50.gradient_bytes
        costs = [communication_cost(each.operation, each.bytes, 4, link) for each in plan.messages]
        taken[device] = sum(float(each.total[0]) for each in costs)

    assert taken["cpu"] == pytest.approx(2.0 * taken["cuda"])


@pytest.mark.parametrize(("strategy", "count"), [("allreduce", 1), ("zero1", 3), ("zero2", 3), ("zero3", 3)])
def test_deepspeeds_buckets_close_ahead_of_what_does_not_fit_and_stage_0_has_none(strategy, count):
    """As many as were counted with reduce_bucket_size 4,000,000."""
    messages = _plan(MLP, "deepspeed", strategy, bucket_values=4_000_000).messages

    assert len(messages) == count
    assert sum(message.bytes for message in messages) == MLP.gradient_bytes


def test_fsdp_fetches_ahead_on_devices_alone():
    ahead = {device: _plan(RESNET50, "pytorch", "fsdp", device=device).prefetch for device in ("cpu", "cuda")}

    assert ahead == {"cpu": 0, "cuda": 1}


def test_fsdp_gathers_a_small_workload_once():
    (gather,) = _plan(LENET5, "pytorch", "fsdp").gathers

    assert not gather.again
