"""Small workloads that hold every kind of layer, with the attributes in which the frameworks differ."""

from steptime.catalog.workloads.layers import Network, Workload


def every_kind() -> Workload:
    """Every kind of layer once, and pooling that rounds up over its padding."""
    net = Network((4, 13, 11))
    x = net.conv2d("grouped", net.input, 6, (3, 2), stride=(2, 1), padding=(1, 1), groups=2)
    x = net.tanh("tanh", net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3))
    x = net.lrn("lrn", x, size=5, alpha=0.8, beta=0.75, k=2.0)
    x = net.max_pool("ceil", x, 2, stride=2, padding=1, ceil_mode=True)
    x = net.max_pool("floor", x, 2, stride=2)
    pooled = net.max_pool("same", x, 3, stride=1, padding=1)
    averaged = net.avg_pool("average", x, 3, stride=1, padding=1)
    x = net.concat("concat", [net.add("add", [pooled, averaged, x]), averaged])
    x = net.relu("relu", net.conv2d("pointwise", x, 8, 1, bias=False))
    x = net.dropout("dropout", net.flatten("flatten", net.global_avg_pool("global", x)), 0.5)
    net.linear("output", net.sigmoid("sigmoid", net.linear("hidden", x, 7)), 5, bias=False)
    return net.finish("every_kind", classes=5)


def values_read_twice() -> Workload:
    """Values that several layers read, and that no layer may overwrite."""
    net = Network((4, 7, 6))
    x = net.tanh("tanh", net.conv2d("grouped", net.input, 6, (3, 2), padding=(1, 1), groups=2))
    norm = net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3)
    first = net.relu("read.twice", norm)
    x = net.add("shortcut", [net.conv2d("inner", first, 6, 1), norm])
    x = net.relu("overwriting", net.add("three", [x, first, net.sigmoid("sigmoid", x)]))
    branches = [
        net.lrn("lrn", net.max_pool("floor", x, 2, stride=2), size=5, alpha=0.8, beta=0.75, k=2.0),
        net.max_pool("ceil", net.avg_pool("average", x, 3, stride=1, padding=1), 3, stride=2, ceil_mode=True),
        net.conv2d("strided", x, 3, 3, stride=2, bias=False),
    ]
    x = net.relu("joined.relu", net.concat("joined", branches))
    flat = net.flatten("flatten", x)
    pooled = net.flatten("flatten.global", net.global_avg_pool("global", x))
    x = net.add("sum", [net.linear("left", flat, 8), net.linear("right", pooled, 8, bias=False)])
    net.linear("output", net.dropout("dropout", net.batch_norm("flat.norm", x), 0.5), 5)
    return net.finish("values_read_twice", classes=5)


def shared_outputs() -> Workload:
    """A convolution's and a normalisation's output that go on by several ways, one of them round the others."""
    net = Network((3, 8, 8))
    x = net.conv2d("conv", net.input, 4, 3, padding=1)
    y = net.relu("relu", x)
    z = net.batch_norm("norm", net.dropout("nothing", y, 0.0))
    x = net.add("add", [net.relu("relu.norm", z), x, net.tanh("tanh", y), net.sigmoid("sigmoid", z)])
    net.linear("output", net.relu("relu.flat", net.flatten("flatten", x)), 5)
    return net.finish("shared_outputs", classes=5)


def uneven_windows() -> Workload:
    """Every kind of layer, with sizes for which channels last and names for a padding are no help."""
    net = Network((4, 15, 10))
    x = net.conv2d("uneven", net.input, 6, (3, 5), stride=2, padding=(1, 2), groups=2)
    x = net.relu("relu", net.batch_norm("norm", x, epsilon=1e-5, momentum=0.2))
    x = net.lrn("lrn", x, size=3, alpha=0.6, beta=0.7, k=1.5)
    x = net.max_pool("past_the_edge", x, 3, stride=2, padding=1, ceil_mode=True)
    same = net.conv2d("same", x, 6, 3, padding=1, bias=False)
    below_zero = net.tanh("tanh", net.conv2d("small", same, 6, 5, padding=2, bias=False))
    x = net.concat("concat", [net.max_pool("padded", below_zero, 3, stride=1, padding=1), x])
    x = net.conv2d("pointwise", net.avg_pool("average", x, 3, stride=1, padding=1), 8, 1, groups=2)
    tall = net.dropout("dropout", net.sigmoid("sigmoid", net.flatten("flatten", x)), 0.4)
    wide = net.flatten("squeeze", net.global_avg_pool("global", x))
    both = net.add("sum", [net.linear("of_all", tall, 7), net.linear("of_means", wide, 7, bias=False)])
    net.linear("output", net.concat("flat_concat", [both, tall]), 5)
    return net.finish("uneven_windows", classes=5)


def pooled_at_edges() -> Workload:
    """Windows at the edges: rounded up, within the padding, and where conventions differ by one window."""
    net = Network((4, 7, 6))
    x = net.tanh("tanh", net.conv2d("grouped", net.input, 6, (3, 2), padding=(1, 1), groups=2))
    x = net.batch_norm("norm", x, epsilon=1e-3, momentum=0.3)
    beyond = net.max_pool("beyond", net.conv2d("conv", net.input, 4, 1), 2, stride=2, padding=1, ceil_mode=True)
    branches = [
        net.lrn("lrn", net.max_pool("floor", x, 2, stride=2), size=5, alpha=0.8, beta=0.75, k=2.0),
        net.max_pool("ceil", net.avg_pool("average", x, 2, stride=1), 3, stride=3, ceil_mode=True),
        net.conv2d("strided", x, 3, 1, stride=3, bias=False),
        net.max_pool("padded", x, 3, stride=3, padding=1),
        beyond,
    ]
    assert net.shape(x)[1:] == (7, 7)
    assert net.shape(beyond) == (4, 4, 4)
    flat = [net.linear(f"flat.{name}", net.flatten(f"flatten.{name}", name), 6) for name in branches]
    edges = net.global_avg_pool("global", net.avg_pool("edges", x, 3, stride=2, padding=1))
    three = net.add("three", [net.relu("relu", net.add("pair", flat[:2])), *flat[2:]])
    x = net.concat("concat", [three, net.flatten("flatten.global", edges)])
    net.linear("output", net.dropout("dropout", net.sigmoid("sigmoid", x), 0.5), 5, bias=False)
    return net.finish("pooled_at_edges", classes=5)


def every_padding() -> Workload:
    """Paddings that a framework's own rule would put elsewhere or refuse, beside some that it places as wanted."""
    net = Network((2, 9, 9))
    branches = [
        net.conv2d("spread", net.input, 4, 3, stride=3, padding=1),
        net.conv2d("depthwise", net.input, 4, 3, stride=2, padding=1, groups=2),
        net.conv2d("even", net.input, 4, 4, padding=1),
        net.conv2d("wide", net.input, 4, (1, 7), padding=(0, 3)),
        net.max_pool("rest", net.input, 2, stride=2, ceil_mode=True),
        net.avg_pool("edges", net.input, 3, stride=2, padding=1),
    ]
    small = net.max_pool("small", net.input, 5, stride=4)
    branches += [net.conv2d("larger", small, 4, 3, padding=1), net.max_pool("beyond", small, 3, padding=1, stride=1)]
    flat = [net.linear(f"{name}.linear", net.flatten(f"{name}.flatten", name), 5) for name in branches]
    net.linear("output", net.add("add", flat), 5)
    return net.finish("every_padding", classes=5)


def autoencoder_of_images() -> Workload:
    """Images in, images of the same shape out."""
    net = Network((2, 6, 5))
    net.conv2d("widen", net.tanh("tanh", net.conv2d("narrow", net.input, 3, 3, padding=1)), 2, 3, padding=1)
    return net.finish("autoencoder_of_images", classes=10, loss="mean_squared_error")


def autoencoder_of_values() -> Workload:
    """Images of two channels in, a flat output whose order matters and whose shape is another."""
    net = Network((2, 3, 4))
    x = net.sigmoid("sigmoid", net.linear("encoder", net.relu("relu", net.flatten("flatten", net.input)), 8))
    net.linear("decoder", x, 24)
    return net.finish("autoencoder_of_values", classes=10, loss="mean_squared_error")


def flat_to_the_end() -> Workload:
    """Nothing after the flatten that could put its values into the workload's order."""
    net = Network((2, 3, 4))
    net.relu("relu", net.flatten("flatten", net.conv2d("conv", net.input, 2, 3, padding=1)))
    return net.finish("flat_to_the_end", classes=24)


def transformer_of_images() -> Workload:
    """Every kind of layer of transformers, and tokens that are flattened and those whose first is taken."""
    net = Network((3, 12, 8))
    x = net.tokens("tokens", net.conv2d("patches", net.input, 12, 4, stride=4))
    x = net.positions("positions", net.class_token("class", net.dropout("nothing", x, 0.0)))
    norm = net.layer_norm("norm1", x, epsilon=1e-3)
    attended = net.attention("attention", net.linear("qkv", norm, 36), 3)
    x = net.add("add1", [x, net.linear("projection", attended, 12, bias=False)])
    wide = net.gelu("gelu", net.linear("mlp1", net.layer_norm("norm2", x), 20))
    x = net.add("add2", [x, net.linear("mlp2", wide, 12)])
    first = net.linear("of_first", net.first_token("first", net.layer_norm("norm3", x)), 5)
    every = net.linear("of_all", net.relu("relu", net.flatten("flatten", x)), 5)
    net.add("output", [first, every])
    return net.finish("transformer_of_images", classes=5)


def transformer_of_tokens() -> Workload:
    """A causal transformer whose embedding is its head too."""
    net = Network((9,))
    x = net.positions("positions", net.embedding("embedding", net.input, 11, 12))
    norm = net.layer_norm("norm1", x, epsilon=1e-3)
    attended = net.attention("attention", net.linear("qkv", norm, 36), 2, causal=True)
    x = net.add("add", [x, net.linear("projection", attended, 12)])
    x = net.gelu("gelu", net.linear("mlp", x, 12), approximate=True)
    net.unembedding("head", net.layer_norm("norm2", x), "embedding")
    return net.finish("transformer_of_tokens", classes=11, loss="next_token_cross_entropy")


def masked_tokens() -> Workload:
    """A transformer that predicts some tokens of each sample, by a head that has only its bias for itself."""
    net = Network((14,))
    x = net.positions("positions", net.embedding("embedding", net.input, 7, 8))
    x = net.segment("segment", net.linear("mixed", x, 8), 2)
    x = net.add("add", [x, net.attention("attention", net.linear("qkv", x, 24), 2)])
    net.unembedding("head", net.layer_norm("norm", x), "embedding", bias=True)
    return net.finish("masked_tokens", classes=7, loss="masked_token_cross_entropy")


def grouped_tokens() -> Workload:
    """A network like Llama: RMS norm, rotary positions, heads that share keys and values, a gate, and no biases."""
    net = Network((10,))
    x = net.embedding("embedding", net.input, 13, 12)
    qkv = net.linear("qkv", net.rms_norm("norm1", x, epsilon=1e-4), 40, bias=False)
    attended = net.attention("attention", qkv, 6, causal=True, key_value_heads=2, rotary_base=20.0)
    x = net.add("add", [x, net.linear("projection", attended, 12, bias=False)])
    hidden = net.swiglu("swiglu", net.linear("gate_up", net.rms_norm("norm2", x), 16, bias=False))
    x = net.add("add2", [x, net.linear("down", hidden, 12, bias=False)])
    net.linear("head", net.rms_norm("norm3", x), 13, bias=False)
    return net.finish("grouped_tokens", classes=13, loss="next_token_cross_entropy")


WORKLOADS = [
    every_kind(),
    values_read_twice(),
    shared_outputs(),
    uneven_windows(),
    pooled_at_edges(),
    every_padding(),
    autoencoder_of_images(),
    autoencoder_of_values(),
    flat_to_the_end(),
    transformer_of_images(),
    transformer_of_tokens(),
    masked_tokens(),
    grouped_tokens(),
]
OF_EVERY_KIND = ("every_kind", "values_read_twice", "uneven_windows", "pooled_at_edges")
"""The workloads that hold every kind of layer but those of transformers."""
OF_TRANSFORMERS = ("transformer_of_images", "transformer_of_tokens", "masked_tokens", "grouped_tokens")
"""The workloads that hold layers of transformers; together every kind."""
