"""Transformers over patches of images and over tokens of text.

Dropout within attention, of which some sources have a tenth, is left out: libraries differ in whether they can.
"""

from functools import partial

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry
from steptime.errors import WorkloadError

_PATCH = 16
_EPSILON, _DROPPED = 1e-12, 0.1
"""Of BERT."""
_WIDENING = 4
"""Of the two layers behind each attention."""
_ROTARY_BASE = 10_000.0
# He's variance is for rectified inputs; those of most layers here are normalised, and have half of it.
_SCALE = 0.5**0.5


def _vit(  # noqa: PLR0913, PLR0917 - three of them are its size
    name: str, width: int, depth: int, heads: int, input_shape: Shape, classes: int
) -> Workload:
    """Return a vision transformer; its table of positions is as long as the image has patches."""
    if len(input_shape) > 1 and any(side % _PATCH for side in input_shape[1:]):
        message = f"layer 'patches' cuts images into squares of {_PATCH} pixels: sides must be multiples"
        raise WorkloadError(message)
    net = Network(input_shape)
    x = net.tokens("tokens", net.conv2d("patches", net.input, width, _PATCH, stride=_PATCH))
    x = net.positions("positions", net.class_token("class", x))
    x = _blocks(net, x, depth, heads, epsilon=1e-6)
    net.linear("head", net.first_token("first", x), classes, initial_scale=_SCALE)
    return net.finish(name, classes=classes)


def _gpt2(  # noqa: PLR0913, PLR0917 - three of them are its size
    name: str, width: int, depth: int, heads: int, input_shape: Shape, classes: int
) -> Workload:
    """Return a GPT-2 without dropout; its table of positions is as long as the sequence."""
    net = Network(input_shape)
    x = net.positions("positions", net.embedding("embedding", net.input, classes, width))
    x = _blocks(net, x, depth, heads, epsilon=1e-5, causal=True)
    net.unembedding("head", x, "embedding")
    return net.finish(name, classes=classes, loss="next_token_cross_entropy")


def _bert(  # noqa: PLR0913, PLR0917 - three of them are its size
    name: str, width: int, depth: int, heads: int, input_shape: Shape, classes: int
) -> Workload:
    """Return a BERT that predicts masked tokens, of one segment; it is normalised behind each branch."""
    net = Network(input_shape)
    x = net.positions("positions", net.embedding("embedding", net.input, classes, width))
    x = net.layer_norm("norm", net.segment("segment", x, 2), epsilon=_EPSILON)
    x = net.dropout("dropout", x, _DROPPED)
    for index in range(depth):
        block = f"block{index + 1}"
        inner = net.linear(f"{block}.qkv", x, 3 * width, initial_scale=_SCALE)
        inner = net.attention(f"{block}.attention", inner, heads)
        inner = net.linear(f"{block}.projection", inner, width, initial_scale=_SCALE)
        inner = net.dropout(f"{block}.dropout1", inner, _DROPPED)
        x = net.layer_norm(f"{block}.norm1", net.add(f"{block}.add1", [x, inner]), epsilon=_EPSILON)
        inner = net.gelu(f"{block}.gelu", net.linear(f"{block}.mlp1", x, _WIDENING * width, initial_scale=_SCALE))
        inner = net.linear(f"{block}.mlp2", inner, width, initial_scale=_SCALE)
        inner = net.dropout(f"{block}.dropout2", inner, _DROPPED)
        x = net.layer_norm(f"{block}.norm2", net.add(f"{block}.add2", [x, inner]), epsilon=_EPSILON)
    x = net.gelu("head.gelu", net.linear("head.linear", x, width, initial_scale=_SCALE))
    net.unembedding("head", net.layer_norm("head.norm", x, epsilon=_EPSILON), "embedding", bias=True)
    return net.finish(name, classes=classes, loss="masked_token_cross_entropy")


def _llama(  # noqa: PLR0913, PLR0917 - five of them are its size
    name: str, width: int, depth: int, heads: int, shared: int, widened: int, input_shape: Shape, classes: int
) -> Workload:
    """Return a Llama whose ``heads`` share the keys and values of ``shared``; no layer has a bias."""
    net = Network(input_shape)
    x = net.embedding("embedding", net.input, classes, width)
    qkv = width + 2 * shared * (width // heads)
    branch_scale = _SCALE / (2 * depth) ** 0.5
    for index in range(depth):
        block = f"block{index + 1}"
        inner = net.linear(f"{block}.qkv", net.rms_norm(f"{block}.norm1", x), qkv, bias=False, initial_scale=_SCALE)
        inner = net.attention(
            f"{block}.attention", inner, heads, causal=True, key_value_heads=shared, rotary_base=_ROTARY_BASE
        )
        inner = net.linear(f"{block}.projection", inner, width, bias=False, initial_scale=branch_scale)
        x = net.add(f"{block}.add1", [x, inner])
        inner = net.rms_norm(f"{block}.norm2", x)
        inner = net.linear(f"{block}.gate_up", inner, 2 * widened, bias=False, initial_scale=_SCALE)
        inner = net.swiglu(f"{block}.swiglu", inner)
        inner = net.linear(f"{block}.down", inner, width, bias=False, initial_scale=branch_scale)
        x = net.add(f"{block}.add2", [x, inner])
    net.linear("head", net.rms_norm("norm", x), classes, bias=False, initial_scale=_SCALE)
    return net.finish(name, classes=classes, loss="next_token_cross_entropy")


def _blocks(  # noqa: PLR0913 - what differs between the transformers
    net: Network, source: str, depth: int, heads: int, *, epsilon: float, causal: bool = False
) -> str:
    """Add ``depth`` blocks and a last normalisation; causal ones have the approximate GELU, as in GPT-2."""
    width = net.shape(source)[1]
    branch_scale = _SCALE / (2 * depth) ** 0.5  # as of the branches of GPT-2 (Radford et al. 2019)
    for index in range(depth):
        name = f"block{index + 1}"
        x = net.layer_norm(f"{name}.norm1", source, epsilon=epsilon)
        x = net.linear(f"{name}.qkv", x, 3 * width, initial_scale=_SCALE)
        x = net.attention(f"{name}.attention", x, heads, causal=causal)
        x = net.linear(f"{name}.projection", x, width, initial_scale=branch_scale)
        between = net.add(f"{name}.add1", [source, x])
        x = net.layer_norm(f"{name}.norm2", between, epsilon=epsilon)
        x = net.linear(f"{name}.mlp1", x, _WIDENING * width, initial_scale=_SCALE)
        x = net.gelu(f"{name}.gelu", x, approximate=causal)
        x = net.linear(f"{name}.mlp2", x, width, initial_scale=branch_scale)
        source = net.add(f"{name}.add2", [between, x])
    return net.layer_norm("norm", source, epsilon=epsilon)


VIT_TINY = Entry(
    "vit_tiny",
    "ViT-Ti/16",
    "Touvron et al. 2021, Training data-efficient image transformers; without its distillation token",
    (3, 224, 224),
    1000,
    5_717_416,
    partial(_vit, "vit_tiny", 192, 12, 3),
)
VIT_B16 = Entry(
    "vit_b16",
    "ViT-B/16",
    "Dosovitskiy et al. 2021, An image is worth 16x16 words",
    (3, 224, 224),
    1000,
    86_567_656,
    partial(_vit, "vit_b16", 768, 12, 12),
)
GPT2_TINY = Entry(
    "gpt2_tiny",
    "GPT-2, tiny",
    "of the architecture of gpt2 (Radford et al. 2019), for tests: 4 blocks of width 128 over bytes",
    (64,),
    256,
    834_304,
    partial(_gpt2, "gpt2_tiny", 128, 4, 4),
    of_tokens=True,
)
GPT2 = Entry(
    "gpt2",
    "GPT-2, 124M",
    "Radford et al. 2019, Language models are unsupervised multitask learners",
    (1024,),
    50_257,
    124_439_808,
    partial(_gpt2, "gpt2", 768, 12, 12),
    of_tokens=True,
)
LLAMA_TINY = Entry(
    "llama_tiny",
    "Llama, tiny",
    "of the architecture of Llama (Touvron et al. 2023), for tests: 4 blocks of width 128 over bytes",
    (64,),
    256,
    791_680,
    partial(_llama, "llama_tiny", 128, 4, 4, 2, 344),
    of_tokens=True,
)
TINYLLAMA_1B = Entry(
    "tinyllama_1b",
    "TinyLlama, 1.1B",
    "Zhang et al. 2024, TinyLlama: an open-source small language model",
    (2048,),
    32_000,
    1_100_048_384,
    partial(_llama, "tinyllama_1b", 2048, 22, 32, 4, 5632),
    of_tokens=True,
)
BERT_TINY = Entry(
    "bert_tiny",
    "BERT-Tiny",
    "Turc et al. 2019, Well-read students learn better; with the head for masked tokens",
    (512,),
    30_522,
    4_416_698,
    partial(_bert, "bert_tiny", 128, 2, 2),
    of_tokens=True,
)
BERT_BASE = Entry(
    "bert_base",
    "BERT-Base, uncased",
    "Devlin et al. 2019, BERT: pre-training of deep bidirectional transformers; with the head for masked tokens",
    (512,),
    30_522,
    109_514_298,
    partial(_bert, "bert_base", 768, 12, 12),
    of_tokens=True,
)
