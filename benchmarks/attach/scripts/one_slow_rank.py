"""DDP of which rank 1 sleeps for 20 ms in each forward pass: `python one_slow_rank.py` below any launcher.

With `ray HOOK RECORDS` it trains the same as two workers of a `TorchTrainer` on two raylets of this machine, attached
by Ray's runtime environment.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, WIDTH, SLOW_S = 80, 16, 256, 0.020


class Net(nn.Module):
    """Three layers, slow in rank 1."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, WIDTH))

    def forward(self, x):
        if dist.get_rank() == 1:
            time.sleep(SLOW_S)
        return self.layers(x)


def train(net):
    """Train for the steps; print the samples of a second in all ranks, without the first steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    moments = []
    for x in torch.utils.data.DataLoader(torch.randn(STEPS * BATCH, WIDTH), batch_size=BATCH):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        moments.append(time.monotonic())
    steps = len(moments) - 11
    if dist.get_rank() == 0:
        rate = dist.get_world_size() * BATCH * steps / (moments[-1] - moments[10])
        print(f"samples a second: {rate:.1f}", flush=True)


def of_ray():
    """Train as a worker of Ray."""
    import ray.train.torch

    torch.set_num_threads(1)
    train(ray.train.torch.prepare_model(Net()))


def with_ray(hook, records):
    """Start two raylets and the workers."""
    import ray
    from ray.cluster_utils import Cluster
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000})
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    ray.init(cluster.address, runtime_env={"env_vars": {"PYTHONPATH": hook, "STEPTIME_ATTACH": records}})
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD")
    run = RunConfig(storage_path=str(Path(records).parent / "ray"))
    TorchTrainer(of_ray, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling, run_config=run).fit()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    if sys.argv[1:2] == ["ray"]:
        with_ray(*sys.argv[2:])
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        train(nn.parallel.DistributedDataParallel(Net()))
        dist.destroy_process_group()
