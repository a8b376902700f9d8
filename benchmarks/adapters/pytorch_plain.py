"""A plain PyTorch training loop, by PyTorch's guide or as an expert writes it; see race_plain.py for its arguments.

With ``RACE_TUNING=documented`` the optimizer and DistributedDataParallel have their own defaults, as in PyTorch's
examples; otherwise the update is fused, gradients are copied into buckets together, and buffers stay where they are.
"""

import json
import os
import sys
import time

import torch
from torch import distributed, nn
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


class LlamaBlock(nn.Module):
    """Grouped attention and a SwiGLU layer, each behind a norm; as published, but with joined projections."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(128, eps=1e-5), nn.RMSNorm(128, eps=1e-5)
        self.qkv, self.out = nn.Linear(128, 256, bias=False), nn.Linear(128, 128, bias=False)
        self.gate_up, self.down = nn.Linear(128, 688, bias=False), nn.Linear(344, 128, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        batch, tokens, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, tokens, 8, 32).transpose(1, 2)
        first, second = heads[:, :6].chunk(2, -1)
        turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)
        y = functional.scaled_dot_product_attention(
            turned[:, :4], turned[:, 4:], heads[:, 6:], is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, 128))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    """Four blocks of width 128 over bytes, 64 in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(256, 128), nn.ModuleList(LlamaBlock() for _ in range(4))
        self.norm, self.head = nn.RMSNorm(128, eps=1e-5), nn.Linear(128, 256, bias=False)
        angles = torch.outer(torch.arange(64.0), 10_000.0 ** (-torch.arange(0, 32, 2) / 32))
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of all tokens, (tokens of the batch, 256)."""
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return self.head(self.norm(x)).flatten(0, 1)


class GPT2Block(nn.Module):
    """Causal attention and a GELU layer, each behind a layer norm; as nanoGPT's ``Block``."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
        self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        batch, tokens, _ = x.shape
        q, k, v = (each.view(batch, tokens, 4, 32).transpose(1, 2) for each in self.qkv(self.norm1(x)).split(128, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, 128))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Four blocks of width 128 over bytes, 64 in a sequence; the head is the embedding, as in nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(256, 128), nn.Embedding(64, 128)
        self.blocks, self.norm = nn.Sequential(*(GPT2Block() for _ in range(4))), nn.LayerNorm(128)
        self.head = nn.Linear(128, 256, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of all tokens, (tokens of the batch, 256)."""
        x = self.embedding(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


OF_TOKENS = {"llama_tiny": Llama, "gpt2_tiny": GPT2}


def tuned() -> bool:
    """Return whether the loop is to be an expert's."""
    return os.environ.get("RACE_TUNING") != "documented"


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    """Return torch's SGD, fused where the loop is an expert's."""
    return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, fused=True if tuned() else None)


def main(workload: str, batch: int, steps: int, warmup: int, meeting: list[str]) -> None:
    """Train and print the ends of the timed steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, _, side = workload.partition("@")
    if name == "lenet5":
        module, shape, classes = LeNet5(), (1, 28, 28), 10
    elif name in OF_TOKENS:
        module, shape, classes = OF_TOKENS[name](), (64,), 256
    else:
        module, shape, classes = resnet50(), (3, int(side), int(side)), 1000
    # Measured: channels innermost make the convolutions of ResNet-50 faster and the thin ones of LeNet-5 slower.
    layout = torch.channels_last if name == "resnet50" else torch.contiguous_format
    module = module.to(memory_format=layout).train()
    x = torch.randn(batch, *shape).to(memory_format=layout)
    t = torch.randint(0, classes, (batch,))
    if name in OF_TOKENS:
        x, t = torch.randint(0, classes, (batch, *shape)), torch.randint(0, classes, (batch * 64,))
    if meeting:
        rank, workers, address = meeting
        distributed.init_process_group("gloo", init_method=f"tcp://{address}", rank=int(rank), world_size=int(workers))
        expert = {"batched_grad_copy": True, "static_graph": True, "forward_sync_buffers": False}
        module = nn.parallel.DistributedDataParallel(module, **(expert if tuned() else {}))
    optimizer = sgd(module)
    ends, cpu = [], []
    for _ in range(warmup + steps):
        loss = functional.cross_entropy(module(x), t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(time.monotonic())
        cpu.append(time.process_time())
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": cpu[-1] - cpu[warmup]}), flush=True)
    if meeting:
        distributed.destroy_process_group()
        # Now and then gloo's threads outlive the group and abort the process at its exit.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
