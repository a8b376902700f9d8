"""What forecasts are judged on: frameworks with their strategies and back ends, and workloads with their sizes."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """A framework, the strategies that exchange gradients, and the back ends of ``steptime net`` that send them."""

    framework: str
    strategies: tuple[str, ...]
    back_ends: tuple[str, ...] = ()
    """None if ``steptime net`` has no back end of the framework: the plain sockets before each launch stand in."""


CONTESTANTS: Mapping[str, Contestant] = {
    each.framework: each
    for each in (
        Contestant("pytorch", ("allreduce", "fsdp", "ps_sync", "ps_async"), ("gloo", "tensorpipe")),
        Contestant("horovod_pytorch", ("allreduce",), ("horovod-gloo",)),
        Contestant("chainer", ("allreduce",), ("mpi",)),
        Contestant("mxnet", ("ps_sync", "ps_async"), ("mxnet",)),
        Contestant("tensorflow", ("allreduce", "ps_async"), ("tensorflow-ring",)),
        Contestant("jax", ("allreduce",), ("jax",)),
        Contestant("deepspeed", ("allreduce", "zero1", "zero2", "zero3")),
        Contestant("horovod_tensorflow", ("allreduce",)),
        Contestant("horovod_mxnet", ("allreduce",)),
        Contestant("tensorflow1", ("ps_sync", "ps_async"), ("tensorflow1",)),
        Contestant("cntk", ("allreduce", "onebit", "block_momentum")),
        Contestant("caffe", ("allreduce",)),
        Contestant("reference", ("allreduce",), ("star",)),
    )
}


@dataclass(frozen=True)
class Load:
    """A workload with the loader ``synthetic``; the side of its images is its usual one where it is None."""

    workload: str
    batch: int
    side: int | None = None
    sequence: int | None = None
    """Tokens of a sample; None for images."""
    optimizer: str | None = None
    """None for the default of studies."""


LOADS: Mapping[str, Load] = {
    "lenet5": Load("lenet5", 64),
    "mlp": Load("autoencoder", 64),
    "small_alexnet": Load("cifar_cnn", 64, 32),
    "resnet50": Load("resnet50", 8, 64),
    "gpt2_tiny": Load("gpt2_tiny", 4, sequence=64, optimizer="adamw"),
    "vit_tiny": Load("vit_tiny", 4, side=32, optimizer="adamw"),
}
"""The multilayer perceptron is the library's narrower one: 11 MB of gradients, where FCN5's 55 MB would take 14 s a
step at 50 Mbit/s. The small AlexNet is the library's for CIFAR-10."""
