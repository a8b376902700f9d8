"""The three workloads whose buckets and steps were measured on emulated hosts."""

from steptime.catalog.workloads.layers import Network
from steptime.catalog.workloads.table import build_workload
from steptime.model.compute import work_of
from steptime.worker.communication import Work


def lenet5() -> Work:
    return work_of(build_workload("lenet5"))


def mlp() -> Work:
    net = Network((784,))
    x = net.relu("relu1", net.linear("fc1", net.input, 1024))
    x = net.relu("relu2", net.linear("fc2", x, 1024))
    net.linear("fc3", x, 10)
    return work_of(net.finish("mlp_784", classes=10))


def small_alexnet() -> Work:
    net = Network((3, 32, 32))
    x = net.max_pool("pool1", net.relu("relu1", net.conv2d("conv1", net.input, 32, 5, padding=2)), 2, stride=2)
    x = net.max_pool("pool2", net.relu("relu2", net.conv2d("conv2", x, 64, 5, padding=2)), 2, stride=2)
    x = net.relu("relu3", net.conv2d("conv3", x, 128, 3, padding=1))
    x = net.relu("relu4", net.conv2d("conv4", x, 128, 3, padding=1))
    x = net.max_pool("pool5", net.relu("relu5", net.conv2d("conv5", x, 96, 3, padding=1)), 2, stride=2)
    x = net.relu("relu6", net.linear("fc1", net.flatten("flatten", x), 640))
    x = net.relu("relu7", net.linear("fc2", x, 256))
    net.linear("fc3", x, 10)
    return work_of(net.finish("small_alexnet", classes=10))
