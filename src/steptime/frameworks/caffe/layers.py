"""Layers of a workload as Caffe's layer messages.

Each maker returns the messages of one layer, in the order of computation; the last one's top holds its output. Names
and blobs are filled in by ``network.py``, which chains the messages of one layer.
"""

from caffe.proto import caffe_pb2

_POOL = caffe_pb2.PoolingParameter


def _conv2d(layer):
    attributes = layer["attributes"]
    message = caffe_pb2.LayerParameter(type="Convolution")
    parameter = message.convolution_param
    parameter.num_output = attributes["out_channels"]
    parameter.kernel_h, parameter.kernel_w = attributes["kernel"]
    parameter.stride_h, parameter.stride_w = attributes["stride"]
    parameter.pad_h, parameter.pad_w = attributes["padding"]
    parameter.group = attributes["groups"]
    parameter.bias_term = attributes["bias"]
    return [message]


def _linear(layer):
    attributes = layer["attributes"]
    message = caffe_pb2.LayerParameter(type="InnerProduct")
    message.inner_product_param.num_output = attributes["out_features"]
    message.inner_product_param.bias_term = attributes["bias"]
    return [message]


def _batch_norm(layer):
    attributes = layer["attributes"]
    normalising = caffe_pb2.LayerParameter(type="BatchNorm")
    normalising.batch_norm_param.eps = attributes["epsilon"]
    # Caffe names the weight of the past, the workload that of the newest batch.
    normalising.batch_norm_param.moving_average_fraction = 1.0 - attributes["momentum"]
    for _ in range(3):  # sums of means and of variances, and how many there are: no trained values
        normalising.param.add(lr_mult=0, decay_mult=0)
    scaling = caffe_pb2.LayerParameter(type="Scale")
    scaling.scale_param.bias_term = True
    return [normalising, scaling]


def _pool(layer, method):
    message = caffe_pb2.LayerParameter(type="Pooling")
    attributes, parameter = layer["attributes"], message.pooling_param
    if any(padding >= kernel for padding, kernel in zip(attributes["padding"], attributes["kernel"])):
        raise ValueError("Caffe cannot pool with more padding than window: layer %s" % layer["name"])
    parameter.pool = method
    parameter.kernel_h, parameter.kernel_w = attributes["kernel"]
    parameter.stride_h, parameter.stride_w = attributes["stride"]
    parameter.pad_h, parameter.pad_w = attributes["padding"]
    parameter.round_mode = _rounding(layer)
    return [message]


def _rounding(layer):
    """How Caffe must round the number of windows so that there are as many as in the workload."""
    wanted = list(layer["output_shape"][1:])
    for mode in (_POOL.CEIL, _POOL.FLOOR):
        if _window_counts(layer, mode) == wanted:
            return mode
    raise ValueError(
        "Caffe cannot pool %s to %s with the windows of layer %s: it would keep a window that lies outside"
        % (layer["input_shapes"][0][1:], wanted, layer["name"])
    )


def _window_counts(layer, mode):
    """How many windows Caffe has along height and width."""
    attributes = layer["attributes"]
    padded = any(attributes["padding"])
    counts = []
    for size, kernel, stride, padding in zip(
        layer["input_shapes"][0][1:], attributes["kernel"], attributes["stride"], attributes["padding"]
    ):
        span = size + 2 * padding - kernel
        count = (span + stride - 1 if mode == _POOL.CEIL else span) // stride + 1
        if padded and (count - 1) * stride >= size + padding:
            count -= 1
        counts.append(count)
    return counts


def _global_avg_pool(_):
    message = caffe_pb2.LayerParameter(type="Pooling")
    message.pooling_param.pool = _POOL.AVE
    message.pooling_param.global_pooling = True
    return [message]


def _lrn(layer):
    attributes = layer["attributes"]
    message = caffe_pb2.LayerParameter(type="LRN")
    parameter = message.lrn_param
    parameter.local_size = attributes["size"]
    parameter.alpha = attributes["alpha"]  # of the mean over the neighbours, in Caffe as in the workload
    parameter.beta = attributes["beta"]
    parameter.k = attributes["k"]
    return [message]


def _dropout(layer):
    rate = layer["attributes"]["rate"]
    if not rate:
        return []
    message = caffe_pb2.LayerParameter(type="Dropout")
    message.dropout_param.dropout_ratio = rate
    return [message]


def _plain(name):
    return lambda _: [caffe_pb2.LayerParameter(type=name)]


KINDS = {
    "conv2d": _conv2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _plain("ReLU"),
    "tanh": _plain("TanH"),
    "sigmoid": _plain("Sigmoid"),
    "max_pool": lambda layer: _pool(layer, _POOL.MAX),
    "avg_pool": lambda layer: _pool(layer, _POOL.AVE),
    "global_avg_pool": _global_avg_pool,
    "lrn": _lrn,
    "dropout": _dropout,
    "flatten": _plain("Flatten"),
    "add": lambda layer: _plain("Eltwise")(layer) if len(layer["inputs"]) > 1 else [],
    "concat": _plain("Concat"),
}
"""Of each kind of layer: from the layer to its messages, none where it changes nothing."""

# What may write over the blob that a layer of the first type made, because that layer's backward pass does not read
# it: activations keep what they need in their own output, and dropout leaves zeros where a ReLU's gradient is zero.
OVERWRITABLE = {
    "ReLU": ("Convolution", "InnerProduct", "BatchNorm", "Scale", "Eltwise", "Concat", "Pooling"),
    "TanH": ("Convolution", "InnerProduct", "BatchNorm", "Scale", "Eltwise", "Concat", "Pooling"),
    "Sigmoid": ("Convolution", "InnerProduct", "BatchNorm", "Scale", "Eltwise", "Concat", "Pooling"),
    "BatchNorm": ("Convolution", "InnerProduct"),
    "Scale": ("BatchNorm",),
    "Dropout": ("Convolution", "InnerProduct", "ReLU", "Pooling"),
}
"""Of each type that can work in place: the types whose output it may replace."""
