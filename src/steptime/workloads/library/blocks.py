"""Groups of layers that several workloads are made of."""

from steptime.workloads.layers import Network, Pair


def conv_norm_relu(  # noqa: PLR0913 - a convolution has this many numbers
    net: Network, name: str, source: str, out_channels: int, kernel: Pair, *, stride: Pair = 1, padding: Pair = 0
) -> str:
    """Convolution without bias, batch normalisation with the epsilon 0.001, ReLU, as the Inception family has them."""
    x = net.conv2d(name, source, out_channels, kernel, stride=stride, padding=padding, bias=False)
    return net.relu(f"{name}.relu", net.batch_norm(f"{name}.norm", x, epsilon=1e-3))


def flat(net: Network, source: str) -> str:
    """``source`` as it is if it has one axis, and flattened by a layer ``flatten`` if it is an image."""
    return source if len(net.shape(source)) == 1 else net.flatten("flatten", source)
