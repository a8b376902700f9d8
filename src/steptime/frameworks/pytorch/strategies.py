"""How several workers train one network, by the strategies' names."""

from steptime.frameworks.pytorch.collectives import AllReduce, FullySharded
from steptime.frameworks.pytorch.pushing import Pushing, PushingFreely
from steptime.worker.sessions.torch_strategy import TorchStrategy

STRATEGIES = {
    "single": TorchStrategy,
    "allreduce": AllReduce,
    "fsdp": FullySharded,
    "ps_sync": Pushing,
    "ps_async": PushingFreely,
}
