"""Transformers over patches of images, normalised before each branch."""

from functools import partial

from steptime.catalog.workloads.kinds import Shape
from steptime.catalog.workloads.layers import Network, Workload
from steptime.catalog.workloads.table import Entry
from steptime.errors import WorkloadError

_PATCH = 16
_EPSILON = 1e-6
_WIDENING = 4
"""Of the two layers behind each attention."""
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
    branch_scale = _SCALE / (2 * depth) ** 0.5  # as of the branches of GPT-2 (Radford et al. 2019)
    for index in range(depth):
        x = _block(net, f"block{index + 1}", x, heads, branch_scale)
    x = net.first_token("first", net.layer_norm("norm", x, epsilon=_EPSILON))
    net.linear("head", x, classes, initial_scale=_SCALE)
    return net.finish(name, classes=classes)


def _block(net: Network, name: str, source: str, heads: int, branch_scale: float) -> str:
    width = net.shape(source)[1]
    x = net.layer_norm(f"{name}.norm1", source, epsilon=_EPSILON)
    x = net.attention(f"{name}.attention", net.linear(f"{name}.qkv", x, 3 * width, initial_scale=_SCALE), heads)
    x = net.linear(f"{name}.projection", x, width, initial_scale=branch_scale)
    between = net.add(f"{name}.add1", [source, x])
    x = net.layer_norm(f"{name}.norm2", between, epsilon=_EPSILON)
    x = net.gelu(f"{name}.gelu", net.linear(f"{name}.mlp1", x, _WIDENING * width, initial_scale=_SCALE))
    x = net.linear(f"{name}.mlp2", x, width, initial_scale=branch_scale)
    return net.add(f"{name}.add2", [between, x])


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
