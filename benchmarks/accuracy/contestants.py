"""Who is measured, on what: frameworks with their back ends, and workloads with their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """A framework's strategy, and the back end of ``steptime net`` that sends its messages."""

    name: str
    framework: str
    strategy: str
    back_end: str
    operation: str = "allreduce"

    @property
    def is_served(self) -> bool:
        """Whether workers exchange through parameter servers."""
        return self.operation == "push_pull"

    @property
    def has_buckets(self) -> bool:
        """Whether its gradients travel in buckets whose beginnings and ends are marked."""
        return self.framework == "pytorch"


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant("pytorch", "pytorch", "allreduce", "gloo"),
        Contestant("horovod", "horovod_pytorch", "allreduce", "horovod-gloo"),
        Contestant("chainer", "chainer", "allreduce", "mpi"),
        Contestant("mxnet_sync", "mxnet", "ps_sync", "mxnet", "push_pull"),
        Contestant("mxnet_async", "mxnet", "ps_async", "mxnet", "push_pull"),
    )
}


@dataclass(frozen=True)
class Load:
    """A workload with the loader ``synthetic``; the side of its images is its usual one where it is None."""

    workload: str
    batch: int
    side: int | None = None
    launches: int = 2
    """Of each cell; one where the link alone decides about the step, which then hardly differs between launches."""


LOADS = {
    "lenet5": Load("lenet5", 64, launches=3),
    "mlp": Load("autoencoder", 64, launches=1),
    "mlp_256": Load("autoencoder", 256, launches=1),
    "small_alexnet": Load("cifar_cnn", 64, 32),
    "resnet50": Load("resnet50", 8, 64, launches=1),
}
"""The multilayer perceptron is the library's narrower one: 11 MB of gradients, where FCN5's 55 MB would take 14 s a
step at 50 Mbit/s. The small AlexNet is the library's for CIFAR-10."""
