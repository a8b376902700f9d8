"""Costs from layers alone, against published totals and against sums written out by hand."""

import pytest

from steptime.catalog.workloads.costs import activation_width, costs, memory_bytes
from steptime.catalog.workloads.kinds import KINDS
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import LIBRARY, build_workload

# Multiply-accumulates of one forward pass at the usual image size, as tables of these workloads give them.
PUBLISHED_GMAC = {
    "alexnet": 0.71,
    "googlenet": 1.50,
    "vgg16": 15.47,
    "inception_v3": 5.71,
    "resnet50": 4.09,
    "resnet101": 7.80,
    "resnet152": 11.51,
    "vit_b16": 17.56,
    "tinyllama_1b": 2048 * (1_100_048_384 - 32_000 * 2048 + 22 * 2 * 2048 * 2048) / 1e9,
    "gpt2": 1024 * (124_439_808 - 1024 * 768 + 12 * 2 * 1024 * 768) / 1e9,  # of parameters and of all pairs of tokens
}


@pytest.mark.parametrize(("name", "expected"), PUBLISHED_GMAC.items())
def test_multiply_accumulates_are_the_published_ones(name, expected):
    assert costs(build_workload(name)).multiply_accumulates / 1e9 == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", LIBRARY)
def test_costs_are_positive_and_belong_to_the_layers(name):
    workload = build_workload(name)
    found = costs(workload)
    assert [cost.name for cost in found.layers] == [layer.name for layer in workload.layers]
    assert min(found.forward_flops, found.backward_flops, found.activation_bytes) > 0
    assert all(cost.forward_flops >= 0 and cost.activation_bytes > 0 for cost in found.layers)


@pytest.mark.parametrize("name", LIBRARY)
def test_gradients_take_four_bytes_per_parameter(name):
    assert costs(build_workload(name)).gradient_bytes == 4 * LIBRARY[name].published_parameters


@pytest.mark.parametrize("name", LIBRARY)
def test_going_back_costs_about_twice_as_much_as_going_forward(name):
    found = costs(build_workload(name))
    assert 1.6 < found.backward_flops / found.forward_flops < 2.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_costs(kind):
    workloads = (every_kind(), *map(build_workload, ("gpt2_tiny", "bert_tiny", "llama_tiny")))
    found = {cost.kind for workload in workloads for cost in costs(workload).layers}
    assert kind in found
    assert memory_bytes(every_kind(), 1) > 0


def test_a_convolution_costs_two_flops_per_multiply_accumulate_and_one_per_bias():
    net = Network((4, 10, 8))
    net.conv2d("it", net.input, 6, (3, 5), groups=2)
    (cost,) = costs(net.finish("one", classes=2)).layers
    assert cost.multiply_accumulates == 6 * 8 * 4 * (2 * 3 * 5)
    assert cost.forward_flops == 2 * cost.multiply_accumulates + 6 * 8 * 4
    assert cost.activation_bytes == 6 * 8 * 4 * 4
    assert cost.parameters == 6 * 2 * 3 * 5 + 6


def test_attention_costs_two_products_of_all_pairs_of_tokens_and_a_softmax():
    net = Network((3, 4, 5))
    x = net.linear("qkv", net.tokens("tokens", net.input), 3 * 6)
    net.attention("it", x, 2)
    cost = costs(net.finish("one", classes=2)).layers[-1]
    assert cost.multiply_accumulates == 2 * 20 * 20 * 6
    assert cost.forward_flops == 2 * cost.multiply_accumulates + 4 * 2 * 20 * 20
    assert cost.backward_flops == 2 * cost.forward_flops


def test_fewer_heads_of_keys_save_no_products_and_rotary_positions_cost_three_flops_a_value():
    net = Network((3, 4, 5))
    x = net.linear("qkv", net.tokens("tokens", net.input), 8 * 2)
    net.attention("it", x, 4, key_value_heads=2, rotary_base=100.0)
    cost = costs(net.finish("one", classes=2)).layers[-1]
    assert cost.multiply_accumulates == 2 * 20 * 20 * 8
    assert cost.forward_flops == 2 * cost.multiply_accumulates + 4 * 4 * 20 * 20 + 3 * 20 * (8 + 4)


def test_the_first_trained_layer_needs_no_gradient_of_its_input():
    net = Network((10,))
    net.linear("second", net.linear("first", net.input, 10, bias=False), 10, bias=False)
    first, second = costs(net.finish("two", classes=10)).layers
    assert first.backward_flops == 2 * 100
    assert second.backward_flops == 4 * 100


def test_layers_before_the_first_trained_one_cost_nothing_to_go_back():
    net = Network((10,))
    net.linear("fc", net.tanh("tanh", net.input), 10)
    tanh, _ = costs(net.finish("two", classes=10)).layers
    assert tanh.forward_flops == 40
    assert tanh.backward_flops == 0


def test_narrower_activations_take_fewer_bytes_and_gradients_do_not():
    workload = build_workload("lenet5")
    wide, narrow = costs(workload), costs(workload, dtype_bytes=2)
    assert narrow.activation_bytes * 2 == wide.activation_bytes
    assert narrow.gradient_bytes == wide.gradient_bytes


def test_memory_is_weights_gradients_momentum_and_what_is_kept():
    """Kept: the input by fc1, the sigmoid's output by itself and fc2. Workspace: fc1's output and the sigmoid's."""
    net = Network((10,))
    x = net.sigmoid("sigmoid", net.linear("fc1", net.input, 20, bias=False))
    net.linear("fc2", x, 5, bias=False)
    workload = net.finish("small", classes=5)
    state, kept, workspace, loss = 4 * 300, 4 * (10 + 20), 4 * (20 + 20), 4 * 5
    assert memory_bytes(workload, 7) == 3 * state + 7 * (kept + workspace + loss)
    assert memory_bytes(workload, 7, optimizer_values=0) == 2 * state + 7 * (kept + workspace + loss)
    assert memory_bytes(workload, 7, optimizer_values=2) == 4 * state + 7 * (kept + workspace + loss)


def test_mixed_precision_keeps_narrow_activations_and_computes_the_loss_in_32_bits():
    net = Network((10,))
    net.linear("fc2", net.sigmoid("sigmoid", net.linear("fc1", net.input, 20, bias=False)), 5, bias=False)
    weights, narrow, loss = 300, 2 * (10 + 20 + 20 + 20), 2 * 4 * 5
    found = memory_bytes(net.finish("small", classes=5), 7, dtype_bytes=2)
    assert found == weights * (3 * 4 + 2) + 7 * (narrow + loss)


@pytest.mark.parametrize("values", [1, 2])
def test_the_memory_of_gpt2_is_what_an_h100_had_allocated(values):
    """By torch.cuda.max_memory_allocated of PyTorch 2.11 with batch 8 in bf16; its optimizer is not on record."""
    width = activation_width("bf16")
    found = memory_bytes(build_workload("gpt2"), 8, dtype_bytes=width, optimizer_values=values)
    assert found == pytest.approx(8.70e9, rel=0.06)


def test_dropout_without_a_rate_keeps_nothing():
    def with_rate(rate: float) -> int:
        net = Network((10,))
        net.linear("fc2", net.dropout("drop", net.tanh("tanh", net.linear("fc1", net.input, 10)), rate), 10)
        return memory_bytes(net.finish("dropping", classes=10), 1)

    assert with_rate(0.5) - with_rate(0.0) == 4 * 10


def test_a_smaller_image_costs_in_proportion_where_nothing_is_padded():
    large, small = (costs(build_workload("resnet50", image=(side, side))) for side in (256, 128))
    assert large.multiply_accumulates / small.multiply_accumulates == pytest.approx(4, rel=0.01)


def every_kind() -> Workload:
    net = Network((4, 8, 8))
    x = net.batch_norm("norm", net.conv2d("conv", net.input, 4, 3, padding=1))
    x = net.add("add", [net.relu("relu", x), net.tanh("tanh", x)])
    x = net.concat("concat", [x, net.sigmoid("sigmoid", x)])
    x = net.lrn("lrn", net.max_pool("max", x, 2, stride=2), size=3, alpha=1.0, beta=0.5, k=1.0)
    sequence = net.positions("positions", net.class_token("class", net.tokens("tokens", x)))
    sequence = net.layer_norm("layer_norm", net.gelu("gelu", net.linear("qkv", sequence, 12)))
    sequence = net.first_token("first", net.attention("attention", sequence, 2))
    x = net.global_avg_pool("global", net.avg_pool("avg", x, 2, stride=2))
    x = net.concat("flat", [net.flatten("flatten_pooled", x), sequence])
    net.linear("fc", net.dropout("drop", net.flatten("flatten", x), 0.5), 3)
    return net.finish("all", classes=3)
