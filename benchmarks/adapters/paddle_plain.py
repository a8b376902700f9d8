"""A plain PaddlePaddle training loop of transformers, as an expert would write it; see race_plain.py for its arguments.

It has one worker.
"""

import json
import os
import sys
import time

import paddle
from paddle import nn
from paddle.base import core
from paddle.nn import functional

TUNED = os.environ.get("RACE_TUNING") == "tuned"


class LlamaBlock(nn.Layer):
    """Grouped attention and a SwiGLU layer, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.qkv, self.out = nn.Linear(128, 256, bias_attr=False), nn.Linear(128, 128, bias_attr=False)
        self.gate_up, self.down = nn.Linear(128, 688, bias_attr=False), nn.Linear(344, 128, bias_attr=False)
        angles = paddle.outer(paddle.arange(64.0), 10_000.0 ** (-paddle.arange(0.0, 32.0, 2.0) / 32.0)).unsqueeze(1)
        self.cosines, self.sines = angles.cos(), angles.sin()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the block's output."""
        heads = self.qkv(self.norm1(x)).reshape([-1, 64, 8, 32])
        first, second = heads[:, :, :6].chunk(2, -1)
        turned = [first * self.cosines - second * self.sines, second * self.cosines + first * self.sines]
        queries, keys = paddle.concat(turned, -1).split([4, 2], 2)
        y = functional.scaled_dot_product_attention(queries, keys, heads[:, :, 6:], is_causal=True)
        x = x + self.out(y.reshape([-1, 64, 128]))
        return x + self.down(functional.swiglu(self.gate_up(self.norm2(x))))


class RMSNorm(nn.Layer):
    """Each token over the root of its mean square; Paddle's own has no kernel for processors."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.create_parameter([128], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the normalised tokens."""
        return x * paddle.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.scale


class Llama(nn.Layer):
    """Four blocks of width 128 over bytes, 64 in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        head = nn.Linear(128, 256, bias_attr=False)
        self.layers = nn.Sequential(nn.Embedding(256, 128), *(LlamaBlock() for _ in range(4)), RMSNorm(), head)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the scores of all tokens, (tokens of the batch, 256)."""
        return self.layers(x).reshape([-1, 256])


class GPT2Block(nn.Layer):
    """Causal attention and a GELU layer, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
        self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the block's output."""
        heads = self.qkv(self.norm1(x)).reshape([-1, 64, 12, 32])
        y = functional.scaled_dot_product_attention(*heads.split(3, 2), is_causal=True)
        x = x + self.out(y.reshape([-1, 64, 128]))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate=True))


class GPT2(nn.Layer):
    """Four blocks of width 128 over bytes, 64 in a sequence; the head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(256, 128), self.create_parameter([64, 128])
        self.blocks = nn.Sequential(*(GPT2Block() for _ in range(4)), nn.LayerNorm(128))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the scores of all tokens, (tokens of the batch, 256)."""
        x = self.blocks(self.embedding(x) + self.positions)
        return paddle.matmul(x, self.embedding.weight, transpose_y=True).reshape([-1, 256])


def main(workload: str, batch: int, steps: int, warmup: int) -> None:
    """Train and print the ends of the timed steps."""
    core.set_num_threads(1)
    module = {"llama_tiny": Llama, "gpt2_tiny": GPT2}[workload]()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=module.parameters(), use_multi_tensor=TUNED)
    tokens = paddle.randint(0, 256, [batch, 65])
    x, t = tokens[:, :64], tokens[:, 1:].reshape([-1])
    ends, cpu = [], []
    for _ in range(warmup + steps):
        loss = functional.cross_entropy(module(x), t)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        ends.append(time.monotonic())
        cpu.append(time.process_time())
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": cpu[-1] - cpu[warmup]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
