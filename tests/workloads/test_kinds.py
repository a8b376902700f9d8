"""Shapes and parameters of single layers, and what cannot be written."""

from collections.abc import Callable

import pytest

from steptime.catalog.workloads.layers import Network
from steptime.errors import WorkloadError

Write = Callable[[Network], str]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda net: net.conv2d("it", net.input, 8, 3), (8, 8, 7)),
        (lambda net: net.conv2d("it", net.input, 8, 3, stride=2, padding=1), (8, 5, 5)),
        (lambda net: net.conv2d("it", net.input, 8, (1, 7), padding=(0, 3)), (8, 10, 9)),
        (lambda net: net.max_pool("it", net.input, 3, stride=2), (4, 4, 4)),
        (lambda net: net.max_pool("it", net.input, 3, stride=2, ceil_mode=True), (4, 5, 4)),
        (lambda net: net.max_pool("it", net.input, 3, stride=2, padding=1), (4, 5, 5)),
        (lambda net: net.max_pool("it", net.input, 2, stride=2, padding=1, ceil_mode=True), (4, 6, 5)),
        (lambda net: net.avg_pool("it", net.input, 3, stride=1, padding=1), (4, 10, 9)),
        (lambda net: net.global_avg_pool("it", net.input), (4, 1, 1)),
        (lambda net: net.flatten("it", net.input), (360,)),
        (lambda net: net.concat("it", [net.input, net.input]), (8, 10, 9)),
        (lambda net: net.add("it", [net.input, net.input]), (4, 10, 9)),
        (lambda net: net.tokens("it", net.input), (90, 4)),
        (lambda net: net.class_token("it", net.tokens("tokens", net.input)), (91, 4)),
        (lambda net: net.positions("it", net.tokens("tokens", net.input)), (90, 4)),
        (lambda net: net.first_token("it", net.tokens("tokens", net.input)), (4,)),
        (lambda net: net.linear("it", net.tokens("tokens", net.input), 12), (90, 12)),
        (lambda net: net.attention("it", net.linear("qkv", net.tokens("tokens", net.input), 12), 2), (90, 4)),
        (lambda net: net.rms_norm("it", net.tokens("tokens", net.input)), (90, 4)),
        (lambda net: net.swiglu("it", net.tokens("tokens", net.input)), (90, 2)),
        (lambda net: net.attention("it", net.tokens("tokens", net.input), 2, key_value_heads=1), (90, 2)),
    ],
)
def test_the_output_has_the_shape_that_the_kind_says(write: Write, expected):
    net = Network((4, 10, 9))
    assert net.shape(write(net)) == expected


def test_a_last_window_that_would_start_in_the_right_padding_is_left_out():
    """5 pixels with 1 of padding: the third window of stride 3 would start at the padding on the right."""
    net = Network((1, 5, 5))
    assert net.shape(net.max_pool("it", net.input, 2, stride=3, padding=1, ceil_mode=True)) == (1, 2, 2)


def test_parameters_of_a_grouped_convolution():
    net = Network((4, 5, 5))
    net.conv2d("it", net.input, 6, 3, groups=2)
    parameters = net.finish("one", classes=2).layers[0].parameters
    assert {p.name: p.shape for p in parameters} == {"it.weight": (6, 2, 3, 3), "it.bias": (6,)}


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda net: net.conv2d("it", net.input, 8, 12), "layer 'it' .*a window of 12 does not fit an input of 10"),
        (lambda net: net.conv2d("it", net.input, 9, 3, groups=2), "do not part into 2 groups"),
        (lambda net: net.linear("it", net.input, 3), "needs a flat input"),
        (lambda net: net.conv2d("it", net.flatten("flat", net.input), 3, 1), "needs an image"),
        (lambda net: net.lrn("it", net.input, size=4, alpha=1.0, beta=0.5, k=1.0), "odd size"),
        (lambda net: net.add("it", [net.input, net.conv2d("c", net.input, 5, 1)]), "inputs of one shape"),
        (lambda net: net.concat("it", [net.input, net.conv2d("c", net.input, 5, 3)]), "differ in channels only"),
        (lambda net: net.layer_norm("it", net.input), "needs a sequence"),
        (lambda net: net.embedding("it", net.input, 5, 6), "needs the numbers of tokens"),
        (lambda net: net.attention("it", net.tokens("tokens", net.input), 2), "4 features cannot be queries, keys"),
        (
            lambda net: net.attention("it", net.tokens("tokens", net.input), 3, key_value_heads=2),
            "of 3 heads that share the keys and values of 2",
        ),
        (
            lambda net: net.attention("it", net.tokens("tokens", net.input), 2, key_value_heads=1, rotary_base=10.0),
            "turn pairs of features, and a head has 1",
        ),
        (lambda net: net.swiglu("it", net.linear("odd", net.tokens("t", net.input), 3)), "as many gates as values"),
        (lambda net: net.relu("twice", net.relu("twice", net.input)), "two layers are named 'twice'"),
    ],
)
def test_a_layer_that_cannot_be_is_refused_with_its_reason(write: Write, said):
    with pytest.raises(WorkloadError, match=said):
        write(Network((4, 10, 9)))


def test_an_unembedding_of_other_features_is_refused():
    net = Network((10,))
    x = net.linear("wide", net.embedding("embedding", net.input, 7, 4), 5)
    with pytest.raises(WorkloadError, match="layer 'it': 'embedding' has 4 features, and 'wide' others"):
        net.unembedding("it", x, "embedding")
