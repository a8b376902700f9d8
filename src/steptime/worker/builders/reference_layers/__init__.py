"""Each kind of layer in plain numpy: its forward computation and the gradients of it.

Arrays inside are channels first and batch *second*: ``(channels, batch, height, width)`` or ``(features, batch)``. One
matrix product then covers a whole batch, statistics of a channel lie in one row, and channels join along the first
axis; with the batch first, each of these would need a transposition.
"""

from steptime.worker.builders.reference_layers.conv2d import Conv2d
from steptime.worker.builders.reference_layers.joining import Add, Concat
from steptime.worker.builders.reference_layers.linear import Flatten, Linear
from steptime.worker.builders.reference_layers.normalising import BatchNorm, LocalResponseNorm
from steptime.worker.builders.reference_layers.pointwise import Dropout, Relu, Sigmoid, Tanh
from steptime.worker.builders.reference_layers.pooling import AvgPool, GlobalAvgPool, MaxPool

LAYERS = {
    "conv2d": Conv2d,
    "linear": Linear,
    "batch_norm": BatchNorm,
    "relu": Relu,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_avg_pool": GlobalAvgPool,
    "lrn": LocalResponseNorm,
    "dropout": Dropout,
    "flatten": Flatten,
    "add": Add,
    "concat": Concat,
}
