"""LeNet-5 as the symbol that the example asks for."""

import mxnet as mx


def get_symbol(num_classes, **_):
    """Return two convolutions and three linear layers with their loss."""
    x = mx.sym.Variable("data")
    x = mx.sym.Activation(mx.sym.Convolution(x, kernel=(5, 5), pad=(2, 2), num_filter=6), act_type="relu")
    x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = mx.sym.Activation(mx.sym.Convolution(x, kernel=(5, 5), num_filter=16), act_type="relu")
    x = mx.sym.flatten(mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2)))
    for width in (120, 84):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=width), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=num_classes), name="softmax")
