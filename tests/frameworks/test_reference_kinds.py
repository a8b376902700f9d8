"""Every kind of layer of the reference, against finite differences in 64 bits on tiny shapes."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from layer_workloads import grouped_tokens, masked_tokens, transformer_of_tokens

from steptime.catalog.workloads.kinds import KINDS
from steptime.catalog.workloads.layers import Network, Workload
from steptime.frameworks.reference import windows as conv2d_file
from steptime.frameworks.reference.layers import ReferenceLayer
from steptime.frameworks.reference.network import LAYERS, ReferenceNetwork
from steptime.frameworks.reference.transformers import erf
from steptime.worker.samples import TOKEN_LOSSES, synthetic_batches
from steptime.worker.weights import initial_weights

BATCH = 3
SAMPLED = 40
Write = Callable[[Network, str], str]

# What stands in the middle of the workload whose gradients are checked: each kind with every shape of attribute that
# changes what it computes. The input is 4 channels of 7 x 6.
CASES: dict[str, dict[str, Write]] = {
    "conv2d": {
        "plain": lambda net, x: net.conv2d("it", x, 5, 3),
        "1x1": lambda net, x: net.conv2d("it", x, 3, 1, bias=False),
        "strided 1x1 that skips the last row": lambda net, x: net.conv2d("it", x, 3, 1, stride=(4, 5)),
        "padded, strided, oblong": lambda net, x: net.conv2d("it", x, 3, (3, 2), stride=(2, 3), padding=(1, 2)),
        "groups": lambda net, x: net.conv2d("it", x, 6, 3, padding=1, groups=2),
        "depthwise": lambda net, x: net.conv2d("it", x, 4, 3, padding=1, groups=4, bias=False),
    },
    "linear": {
        "with bias": lambda net, x: net.linear("it", net.flatten("flat", x), 5),
        "without bias": lambda net, x: net.linear("it", net.flatten("flat", x), 5, bias=False),
        "of tokens": lambda net, x: net.linear("it", net.tokens("tokens", x), 5),
        "of tokens, without bias": lambda net, x: net.linear("it", net.tokens("tokens", x), 5, bias=False),
    },
    "batch_norm": {
        "images": lambda net, x: net.batch_norm("it", x, epsilon=1e-3, initial_scale=0.7),
        "features": lambda net, x: net.batch_norm("it", net.linear("features", net.flatten("flat", x), 4)),
    },
    "relu": {"": lambda net, x: net.relu("it", x)},
    "tanh": {"": lambda net, x: net.tanh("it", x)},
    "sigmoid": {"": lambda net, x: net.sigmoid("it", x)},
    "max_pool": {
        "plain": lambda net, x: net.max_pool("it", x, 2, stride=2),
        "overlapping, padded": lambda net, x: net.max_pool("it", x, 3, stride=2, padding=1),
        "ceil mode": lambda net, x: net.max_pool("it", x, 3, stride=3, ceil_mode=True),
        "ceil mode, padded": lambda net, x: net.max_pool("it", x, 2, stride=2, padding=1, ceil_mode=True),
    },
    "avg_pool": {
        "plain": lambda net, x: net.avg_pool("it", x, 3, stride=2),
        "overlapping, padded": lambda net, x: net.avg_pool("it", x, 3, stride=1, padding=1),
    },
    "global_avg_pool": {"": lambda net, x: net.global_avg_pool("it", x)},
    "lrn": {
        "5": lambda net, x: net.lrn("it", x, size=5, alpha=0.8, beta=0.75, k=2.0),
        "wider than the channels": lambda net, x: net.lrn("it", x, size=9, alpha=0.8, beta=0.5, k=1.0),
    },
    "dropout": {"": lambda net, x: net.dropout("it", x, 0.4)},
    "flatten": {"": lambda net, x: net.flatten("it", x)},
    "add": {
        "two": lambda net, x: net.add("it", [x, net.tanh("other", x)]),
        "three, one of them twice": lambda net, x: net.add("it", [x, x, net.tanh("other", x)]),
    },
    "tokens": {"": lambda net, x: net.tokens("it", x)},
    "class_token": {"": lambda net, x: net.class_token("it", net.tokens("tokens", x))},
    "positions": {"": lambda net, x: net.positions("it", net.tokens("tokens", x))},
    "segment": {"": lambda net, x: net.segment("it", net.tokens("tokens", x), 1)},
    "first_token": {
        "": lambda net, x: net.first_token(
            "it", net.attention("all", net.linear("qkv", net.tokens("tokens", x), 12), 2)
        )
    },
    "layer_norm": {"": lambda net, x: net.layer_norm("it", net.tokens("tokens", x), epsilon=1e-3)},
    "rms_norm": {"": lambda net, x: net.rms_norm("it", net.tokens("tokens", x), epsilon=1e-3)},
    "swiglu": {"": lambda net, x: net.swiglu("it", net.tokens("tokens", x))},
    "gelu": {
        "exact": lambda net, x: net.gelu("it", x),
        "approximate": lambda net, x: net.gelu("it", x, approximate=True),
    },
    "attention": {
        "one head": lambda net, x: net.attention("it", net.linear("qkv", net.tokens("tokens", x), 9), 1),
        "causal": lambda net, x: net.attention("it", net.linear("qkv", net.tokens("tokens", x), 18), 3, causal=True),
        "heads": lambda net, x: net.attention("it", net.linear("qkv", net.tokens("tokens", x), 18, bias=False), 3),
        "grouped, rotary": lambda net, x: net.attention(
            "it", net.linear("qkv", net.tokens("tokens", x), 32), 4, causal=True, key_value_heads=2, rotary_base=30.0
        ),
    },
    "concat": {
        "three": lambda net, x: net.concat("it", [net.tanh("other", x), x, net.conv2d("third", x, 2, 1)]),
    },
}


OF_TOKENS = (transformer_of_tokens(), masked_tokens(), grouped_tokens())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_be_computed_and_is_checked(kind):
    assert kind in LAYERS
    assert CASES.get(kind) or any(layer.kind == kind for workload in OF_TOKENS for layer in workload.layers)


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, cases in CASES.items() for case in cases])
def test_gradients_are_those_of_finite_differences(kind, case):
    """Layers stand before and after the checked one, so that its input's gradient is checked with its weights'."""
    check_gradients(around(CASES[kind][case], "softmax_cross_entropy"))


@pytest.mark.parametrize("workload", OF_TOKENS, ids=lambda workload: workload.name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_of_workloads_of_tokens_are_those_of_finite_differences(workload, smoothing):
    network, inputs, targets = prepared(workload, smoothing)
    network.backpropagate(inputs, targets)
    for name, gradient in network.gradients.items():
        chosen = np.random.RandomState(6).permutation(gradient.size)[:SAMPLED]
        expected = finite_differences(network, inputs, targets, name, chosen)
        np.testing.assert_allclose(gradient.ravel()[chosen], expected, rtol=1e-5, atol=1e-8, err_msg=name)


def test_a_causal_token_does_not_see_those_behind_it():
    network, inputs, _ = prepared(transformer_of_tokens())
    before = network.forward(inputs)
    inputs[5] = (inputs[5] + 1) % 11
    after = network.forward(inputs)
    np.testing.assert_array_equal(after[:5], before[:5])
    assert (after[5:] != before[5:]).all()


def test_rotary_scores_depend_on_how_far_apart_tokens_are_alone():
    """A sequence that is moved by some places keeps its outputs (Su et al. 2021, 3.4.1)."""
    attention = attention_of(heads=2, rotary_base=50.0)
    values = np.random.RandomState(7).standard_normal((9, 1, 12))
    outputs = attention.forward(values)
    later = attention_of(heads=2, rotary_base=50.0)
    cosines, sines = later._turns
    moved = (cosines + 1j * sines) * (cosines[3] + 1j * sines[3])
    later._turns = moved.real, moved.imag
    np.testing.assert_allclose(later.forward(values), outputs, rtol=1e-12)


def test_rotary_positions_turn_the_halves_of_a_head_as_complex_numbers():
    """Queries and keys of one head, multiplied by exp(i place / base^(2 pair / features))."""
    queries, keys = np.random.RandomState(8).standard_normal((2, 9, 4))
    speed = np.array([1.0, 1 / 50**0.5])
    turned = [(each[:, :2] + 1j * each[:, 2:]) * np.exp(1j * np.outer(np.arange(9), speed)) for each in (queries, keys)]
    scores = (turned[0] @ turned[1].conj().T).real / 4**0.5
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    packed = np.concatenate([queries, keys, np.eye(9)[:, :4]], axis=1)[:, None]
    np.testing.assert_allclose(attention_of(heads=1, rotary_base=50.0).forward(packed)[:, 0], shares[:, :4], rtol=1e-12)


def test_heads_in_a_row_share_keys_and_values():
    """Grouped attention is that of as many heads whose keys and values are copies."""
    values = np.random.RandomState(9).standard_normal((9, 2, 8 * 3))
    rows = values.reshape(9, 2, 8, 3)
    copies = rows[:, :, [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]].reshape(9, 2, 36)
    grouped = attention_of(heads=4, key_value_heads=2)
    np.testing.assert_allclose(grouped.forward(values), attention_of(heads=4).forward(copies), rtol=1e-12)


def attention_of(**settings: float) -> ReferenceLayer:
    """Return a layer of attention over nine tokens, in which a head has the features of 12 by the number of heads."""
    layer = {"attributes": {"causal": False, **settings}, "output_shape": [9, 12 if settings["heads"] > 1 else 4]}
    return LAYERS["attention"](layer, {}, {}, True)


def test_the_gradient_of_the_squared_error_is_that_of_finite_differences():
    check_gradients(around(CASES["sigmoid"][""], "mean_squared_error"))


def test_a_batch_too_large_to_spread_at_once_gives_the_same(monkeypatch):
    """Convolution works through a large batch in parts."""
    network, inputs, targets = prepared(around(CASES["conv2d"]["groups"], "softmax_cross_entropy"))
    whole = network.backpropagate(inputs, targets), network.slopes.copy()
    monkeypatch.setattr(conv2d_file, "_SPREAD_BYTES", 1)
    parts = network.backpropagate(inputs, targets), network.slopes
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-9, atol=1e-12)


def test_the_error_function_is_right_to_the_last_bits():
    values = np.linspace(-7.0, 7.0, 20_001)
    np.testing.assert_allclose(erf(values), [math.erf(value) for value in values], rtol=0, atol=4e-16)


def test_dropout_keeps_the_expected_value_and_the_asked_share():
    net = Network((2, 100, 100))
    net.dropout("it", net.input, 0.3)
    network = ReferenceNetwork(net.finish("drop", classes=2).to_json())
    network.set_mask_stream(np.random.RandomState(0))
    output = network.forward(np.ones((2, 1, 100, 100), dtype=np.float32))
    assert np.unique(output) == pytest.approx([0.0, 1 / 0.7])
    assert output.mean() == pytest.approx(1.0, abs=0.02)


def test_the_loss_of_equal_scores_is_the_logarithm_of_the_classes():
    net = Network((4,))
    net.linear("it", net.input, 10)
    network = ReferenceNetwork(net.finish("flat", classes=10).to_json())
    inputs, targets = network.batch(np.ones((5, 4), dtype=np.float32), np.arange(5))
    assert network.loss(inputs, targets) == pytest.approx(np.log(10), rel=1e-7)


def check_gradients(workload: Workload) -> None:
    network, inputs, targets = prepared(workload)
    network.set_mask_stream(np.random.RandomState(5))
    network.backpropagate(inputs, targets)
    for name, gradient in network.gradients.items():
        chosen = np.random.RandomState(6).permutation(gradient.size)[:SAMPLED]
        expected = finite_differences(network, inputs, targets, name, chosen)
        if name.endswith("weight"):  # a bias before a normalisation is without effect
            assert np.abs(expected).max() > 1e-4, f"{name}: nothing flows through the layer"
        np.testing.assert_allclose(gradient.ravel()[chosen], expected, rtol=1e-5, atol=1e-8, err_msg=name)


def around(write: Write, loss: str) -> Workload:
    """Return a workload with ``write``'s layers between trained ones."""
    net = Network((2, 7, 6))
    x = write(net, net.conv2d("before", net.input, 4, 1))
    if len(net.shape(x)) > 1:
        x = net.flatten("flatten", x)
    x = net.tanh("squash", x)  # makes the gradient that reaches the checked layer differ from value to value
    net.linear("after", x, 84 if loss == "mean_squared_error" else 3)
    return net.finish("checked", classes=3, loss=loss)


def prepared(workload: Workload, smoothing: float = 0.0) -> tuple[ReferenceNetwork, np.ndarray, np.ndarray]:
    """Return the workload's network in 64 bits, with weights and a batch."""
    description = workload.to_json()
    network = ReferenceNetwork(description, np.float64, smoothing=smoothing)
    network.set_weights(initial_weights(description["layers"], 3))
    if workload.loss in TOKEN_LOSSES:
        job = {"workload": description, "batch_per_worker": BATCH, "seed": 4, "loader": {"distinct_batches": 1}}
        return network, *network.batch(*synthetic_batches(job, 0)[0])
    stream = np.random.RandomState(4)
    images = stream.standard_normal((BATCH, 2, 7, 6))
    classes = stream.randint(0, 3, BATCH)
    targets = images if workload.loss == "mean_squared_error" else classes
    return network, *network.batch(images, targets)


def finite_differences(
    network: ReferenceNetwork, inputs: np.ndarray, targets: np.ndarray, name: str, chosen: np.ndarray
) -> np.ndarray:
    """Return central differences of the loss by the ``chosen`` weights of one array; dropout repeats its masks."""
    width = 1e-5
    weights = network.weights[name].reshape(-1)
    slopes = []
    for index in chosen:
        value, losses = weights[index], []
        for moved in (value + width, value - width):
            weights[index] = moved
            network.set_mask_stream(np.random.RandomState(5))
            losses.append(network.loss(inputs, targets))
        weights[index] = value
        slopes.append((losses[0] - losses[1]) / (2 * width))
    return np.array(slopes)
