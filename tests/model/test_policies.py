"""What every framework's rule must keep to, over all rules and workloads."""

import re
from collections import Counter
from pathlib import Path

import pytest

import steptime.frameworks
from steptime.model.communication_plan import Circumstances
from steptime.model.layer_work import even_work, work_of
from steptime.model.policies import BY_STRATEGY, POLICIES
from steptime.model.step_graph import step_graph
from steptime.study.strategies import STRATEGIES
from steptime.workloads.table import build_workload

WORKS = [*(work_of(build_workload(name)) for name in ("lenet5", "mlp", "resnet50")), even_work("bert", 100_000_001)]
RULES = [pytest.param(*key, id="-".join(key)) for key in POLICIES]


def _graph(work, framework, strategy, servers=2, device="cpu", **options):
    circumstances = Circumstances(workers=4, servers=servers, options=options, device=device, batch=32)
    return step_graph(work, framework, strategy, circumstances)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
@pytest.mark.parametrize(("framework", "strategy"), RULES)
class TestEveryRule:
    """Of every framework and strategy, for works of several kinds."""

    def test_sends_every_gradient_once(self, framework, strategy, work):
        sent = Counter(name for message in _graph(work, framework, strategy).messages for name in message.tensors)

        assert sent == Counter(tensor.name for tensor in work.forward_tensors())

    def test_sends_as_many_bytes_as_there_are(self, framework, strategy, work):
        bits = 1 if strategy == "onebit" else 32
        sent = sum(message.bytes for message in _graph(work, framework, strategy).messages)

        assert sent == pytest.approx(work.gradient_bytes * bits / 32, abs=1)

    def test_sends_nothing_before_it_is_there(self, framework, strategy, work):
        layer_of = {tensor.name: tensor.layer for tensor in work.forward_tensors()}

        for message in _graph(work, framework, strategy).messages:
            assert message.after <= min(layer_of[name] for name in message.tensors)

    def test_starts_messages_in_the_order_in_which_they_can_go(self, framework, strategy, work):
        moments = [message.after for message in _graph(work, framework, strategy).messages]

        assert moments == sorted(moments, reverse=True)

    def test_names_servers_that_exist(self, framework, strategy, work):
        graph = _graph(work, framework, strategy, servers=3)

        assert all(message.server is None or message.server < graph.servers for message in graph.messages)

    def test_draws_a_graph_without_cycles(self, framework, strategy, work):
        for place, node in enumerate(_graph(work, framework, strategy).nodes):
            assert all(before < place for before in node.after)

    def test_draws_every_message_behind_the_layer_that_it_waits_for(self, framework, strategy, work):
        graph = _graph(work, framework, strategy)
        nodes = graph.nodes
        for node in nodes:
            if node.kind == "exchange" and nodes[node.after[0]].kind == "backward":
                assert nodes[node.after[0]].layer == graph.messages[node.message].after


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
@pytest.mark.parametrize(("framework", "strategy"), [("pytorch", "fsdp"), ("deepspeed", "zero3")])
def test_weights_are_gathered_unless_they_are_kept(framework, strategy, work):
    plan = _graph(work, framework, strategy).plan
    kept = sum(message.bytes for message in plan.after_update)

    assert sum(gather.bytes for gather in plan.gathers) + kept == work.gradient_bytes


def test_every_strategy_has_a_rule():
    assert set(BY_STRATEGY) == set(STRATEGIES)


def test_every_room_has_rules_for_all_its_strategies():
    for manifest in Path(steptime.frameworks.__file__).parent.glob("*/framework.toml"):
        for strategy in re.findall(r"^\[strategies\.(\w+)\]", manifest.read_text(), re.MULTILINE):
            assert strategy == "single" or (manifest.parent.name, strategy) in POLICIES


def test_an_unknown_strategy_is_an_error():
    with pytest.raises(KeyError):
        _graph(WORKS[0], "pytorch", "hearsay")


def test_an_unknown_framework_follows_the_plainest_rule():
    assert len(_graph(WORKS[0], "mine", "allreduce").messages) == 1


class TestOptions:
    """What options change."""

    def test_caffe_sums_layer_by_layer_when_asked(self):
        assert len(_graph(WORKS[0], "caffe", "allreduce").messages) == 1
        assert len(_graph(WORKS[0], "caffe", "allreduce", reduction="layerwise").messages) == 10

    def test_tensorflow_packs_until_the_size_is_passed(self):
        sizes = [message.bytes for message in _graph(WORKS[2], "tensorflow", "allreduce", pack_mb=4.0).messages]

        assert all(size > 4 * 2**20 for size in sizes[:-1])

    def test_tensorflow_packs_all_together_with_zero(self):
        assert len(_graph(WORKS[2], "tensorflow", "allreduce", pack_mb=0.0).messages) == 1

    def test_jax_sends_small_gradients_together(self):
        sizes = sorted(message.bytes for message in _graph(WORKS[0], "jax", "allreduce", pack_kb=16).messages)

        assert sizes == [4 * (61_706 - 48_000 - 10_080), 4 * 10_080, 4 * 48_000]

    def test_jax_sends_all_alone_with_zero(self):
        assert len(_graph(WORKS[0], "jax", "allreduce", pack_kb=0).messages) == 10

    def test_chainermn_sends_gradients_one_by_one_on_processors_and_at_once_when_asked(self):
        assert len(_graph(WORKS[0], "chainer", "allreduce").messages) == 10
        assert len(_graph(WORKS[0], "chainer", "allreduce", communicator="flat").messages) == 1

    def test_mxnet_cuts_large_arrays_into_parts_for_all_servers(self):
        messages = _graph(WORKS[0], "mxnet", "ps_sync", bigarray_bound=10_080).messages
        cut = {message.tensors[0] for message in messages if message.server is None}

        assert cut == {"fc1.weight", "fc2.weight"}

    def test_mxnet_prefers_layers_that_are_used_first(self):
        messages = _graph(WORKS[0], "mxnet", "ps_sync").messages

        assert [message.priority for message in messages] == list(range(-9, 1))

    def test_mxnet_sends_beside_the_backward_pass_on_devices_alone(self):
        ends = {
            device: {message.after for message in _graph(WORKS[0], "mxnet", "ps_sync", device=device).messages}
            for device in ("cpu", "cuda")
        }

        assert ends["cpu"] == {0}
        assert len(ends["cuda"]) > 1

    def test_pytorch_balances_servers_better_than_in_turn(self):
        def largest(sharding):
            messages = _graph(WORKS[2], "pytorch", "ps_sync", servers=4, sharding=sharding).messages
            return max(message.bytes for message in messages)

        assert largest("balanced") < largest("round_robin")

    def test_cntk_sends_what_is_small_at_once(self):
        alexnet = work_of(build_workload("alexnet"))
        messages = _graph(alexnet, "cntk", "allreduce").messages

        assert [message.tensors for message in messages[:-1]] == [("fc6.weight",), ("fc7.weight",)]
        assert len(_graph(WORKS[0], "cntk", "allreduce").messages) == 1

    def test_one_bit_is_a_thirty_second(self):
        (message,) = _graph(WORKS[1], "cntk", "onebit").messages

        assert message.bytes == pytest.approx(WORKS[1].gradient_bytes / 32, abs=1)

    def test_blocks_are_samples_of_all_workers(self):
        assert _graph(WORKS[0], "cntk", "block_momentum", block_size=1280).plan.every == 10

    def test_zero_sends_half_as_much_again_as_an_all_reduce(self):
        plan = _graph(WORKS[2], "deepspeed", "zero2").plan

        assert [message.operation for message in (*plan.messages, *plan.after_update)] == ["allreduce", "all_gather"]
        assert plan.bytes == 2 * WORKS[2].gradient_bytes

    def test_fsdp_fetches_ahead_on_devices_alone(self):
        ahead = {device: _graph(WORKS[2], "pytorch", "fsdp", device=device).plan.prefetch for device in ("cpu", "cuda")}

        assert ahead == {"cpu": 0, "cuda": 1}

    def test_fsdp_gathers_a_small_workload_once(self):
        (gather,) = _graph(WORKS[0], "pytorch", "fsdp").plan.gathers

        assert not gather.again
