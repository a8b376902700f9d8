"""A script that trains with DDP; each rank sleeps for 60 ms times its number in the forward pass."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        time.sleep(0.06 * dist.get_rank())
        return self.layer(x)


torch.set_num_threads(1)
dist.init_process_group("gloo")
net = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(160, 64), batch_size=8):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
