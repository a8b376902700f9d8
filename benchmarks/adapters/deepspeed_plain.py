"""A plain DeepSpeed training loop, as an expert of DeepSpeed would write it; see race_plain.py for its arguments.

It trains with stage 0 of ZeRO, which is the strategy ``allreduce``, and alone as ``single``.
"""

import json
import os
import sys
import time

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from torch import nn
from torch.nn import functional


class LeNet5(nn.Module):
    """Two convolutions and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of a batch."""
        x = functional.max_pool2d(functional.relu(self.conv1(x), inplace=True), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x), inplace=True), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)), inplace=True)
        return self.fc3(functional.relu(self.fc2(x), inplace=True))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; the stride sits in the second."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if inputs != 4 * width or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


def resnet50() -> nn.Module:
    """Return ResNet-50 v1.5 for 1000 classes."""
    blocks, inputs = [], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            blocks.append(Bottleneck(inputs, 64 * 2**stage, 2 if stage and not block else 1))
            inputs = 256 * 2**stage
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, _, side = workload.partition("@")
    if name == "lenet5":
        module, shape, classes = LeNet5(), (1, 28, 28), 10
    else:
        module, shape, classes = resnet50(), (3, int(side), int(side)), 1000
    layout = torch.contiguous_format if name == "lenet5" else torch.channels_last
    x = torch.randn(batch, *shape).to(memory_format=layout)
    t = torch.randint(0, classes, (batch,))
    rank, workers, address = meeting or ("0", "1", "127.0.0.1:0")
    host, port = address.split(":")
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=workers, MASTER_ADDR=host, MASTER_PORT=port)
    # Serves inference only, and would have to be compiled first.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    engine, *_ = deepspeed.initialize(
        model=module.train(),
        optimizer=torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, fused=True),
        config={"train_micro_batch_size_per_gpu": batch, "gradient_clipping": 0.0, "steps_per_print": 2**31},
    )
    module.to(memory_format=layout)  # what DeepSpeed broadcasts at the beginning has to be contiguous
    ends, cpu = [], []
    for _ in range(warmup + steps):
        loss = functional.cross_entropy(engine(x), t)
        engine.backward(loss)
        engine.step()
        ends.append(time.monotonic())
        cpu.append(time.process_time())
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": cpu[-1] - cpu[warmup]}), flush=True)
    engine.destroy()
    deepspeed.comm.destroy_process_group()
    # Now and then gloo's threads outlive the group and abort the process at its exit.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
