"""A plain JAX training loop, as an expert would write it; see race_plain.py for its arguments.

With a rank it trains under ``shard_map`` over gloo. Layers are ``lax``'s own, channels last, and nothing is waited for
but what ends a step.
"""

import json
import math
import os
import sys
import time

os.environ.update(JAX_PLATFORMS="cpu", PJRT_NPROC="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

KEYS = iter(range(10**6))
Parameters = dict[str, jax.Array]


def main(workload: str, batch: int, steps: int, warmup: int, workers: int) -> None:  # noqa: C901 - networks, and workers
    """Train and print the ends of the timed steps."""
    name, _, side = workload.partition("@")
    if name == "lenet5":
        net, parameters, shape, classes = lenet5, lenet5_parameters(), (28, 28, 1), 10
    elif name in OF_TOKENS:
        net, made = OF_TOKENS[name]
        parameters, shape, classes = made(), (64,), 256
    else:
        parameters = resnet50_parameters()
        net, shape, classes = resnet50, (int(side), int(side), 3), 1000

    def train(parameters: Parameters, velocity: Parameters, images: jax.Array, labels: jax.Array) -> tuple:
        def loss_of(parameters: Parameters) -> jax.Array:
            scores = jax.nn.log_softmax(net(parameters, images))
            return -jnp.take_along_axis(scores, labels[:, None], 1).mean()

        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        if workers > 1:
            gradients = lax.pmean(gradients, "workers")
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
        return jax.tree.map(lambda p, v: p - 0.01 * v, parameters, velocity), velocity, loss[None]

    mesh = Mesh(np.array(jax.devices()), ("workers",))
    alike, split = PartitionSpec(), PartitionSpec("workers")
    if workers > 1:
        train = jax.shard_map(
            train, mesh=mesh, in_specs=(alike, alike, split, split), out_specs=(alike, alike, split), check_vma=False
        )
    step = jax.jit(train, donate_argnums=(0, 1))

    def put(array: np.ndarray, spec: PartitionSpec) -> jax.Array:
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), np.asarray(array))

    velocity = {key: put(np.zeros_like(value), alike) for key, value in parameters.items()}
    parameters = {key: put(value, alike) for key, value in parameters.items()}
    images = put(np.random.default_rng(0).standard_normal((batch, *shape)).astype(np.float32), split)
    labels = put(np.random.default_rng(0).integers(0, classes, batch).astype(np.int32), split)
    if name in OF_TOKENS:
        tokens = np.random.default_rng(0).integers(0, classes, (batch, 65)).astype(np.int32)
        images, labels = put(tokens[:, :64], split), put(tokens[:, 1:].reshape(-1), split)
    ends = []
    for index in range(warmup + steps):
        parameters, velocity, loss = step(parameters, velocity, images, labels)
        loss.block_until_ready()
        ends.append(time.monotonic())
        if index == warmup:
            cpu_before = time.process_time()
    print(json.dumps({"ends_s": ends[warmup:], "cpu_s": time.process_time() - cpu_before}), flush=True)


def weight(*shape: int) -> jax.Array:
    """He-normal values."""
    return jax.random.normal(jax.random.key(next(KEYS)), shape) * math.sqrt(2 / math.prod(shape[:-1]))


def conv(images: jax.Array, kernel: jax.Array, stride: int = 1, pad: int = 0) -> jax.Array:
    """A convolution, channels last."""
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pool(images: jax.Array, size: int, stride: int, pad: int = 0) -> jax.Array:
    """A max-pooling."""
    edges = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), edges)


def lenet5_parameters() -> Parameters:
    """LeNet-5's 61,706 values."""
    shapes = {"c1": (5, 5, 1, 6), "c2": (5, 5, 6, 16), "f1": (400, 120), "f2": (120, 84), "f3": (84, 10)}
    made = {name: weight(*shape) for name, shape in shapes.items()}
    return made | {name + "b": jnp.zeros(shape[-1]) for name, shape in shapes.items()}


def lenet5(p: Parameters, x: jax.Array) -> jax.Array:
    """Scores of a batch."""
    x = pool(jax.nn.relu(conv(x, p["c1"], pad=2) + p["c1b"]), 2, 2)
    x = pool(jax.nn.relu(conv(x, p["c2"]) + p["c2b"]), 2, 2).reshape(len(x), -1)
    x = jax.nn.relu(x @ p["f1"] + p["f1b"])
    return jax.nn.relu(x @ p["f2"] + p["f2b"]) @ p["f3"] + p["f3b"]


def llama_parameters() -> Parameters:
    """The 791,680 values of Llama's architecture with four blocks of width 128."""
    made = {"embedding": 0.02 * weight(256, 128), "norm": jnp.ones(128), "head": weight(128, 256)}
    for block in map(str, range(4)):
        shapes = {"qkv": (128, 256), "out": (128, 128), "gate_up": (128, 688), "down": (344, 128)}
        made |= {block + name: weight(*shape) for name, shape in shapes.items()}
        made |= {block + "norm1": jnp.ones(128), block + "norm2": jnp.ones(128)}
    return made


ANGLES = np.outer(np.arange(64), 10_000.0 ** (-np.arange(0, 32, 2) / 32))[:, None]


def llama(p: Parameters, x: jax.Array) -> jax.Array:
    """Scores of all tokens, (tokens of the batch, 256)."""
    cosines, sines = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)

    def normed(x: jax.Array, name: str) -> jax.Array:
        return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * p[name]

    def turned(x: jax.Array) -> jax.Array:
        first, second = jnp.split(x, 2, -1)
        return jnp.concatenate([first * cosines - second * sines, second * cosines + first * sines], -1)

    x = p["embedding"][x]
    for block in map(str, range(4)):
        heads = (normed(x, block + "norm1") @ p[block + "qkv"]).reshape(len(x), 64, 8, 32)
        q, k, v = jnp.split(heads, (4, 6), 2)
        y = jax.nn.dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + y.reshape(len(x), 64, 128) @ p[block + "out"]
        gate, up = jnp.split(normed(x, block + "norm2") @ p[block + "gate_up"], 2, -1)
        x = x + (jax.nn.silu(gate) * up) @ p[block + "down"]
    return (normed(x, "norm") @ p["head"]).reshape(-1, 256)


def gpt2_parameters() -> Parameters:
    """The 834,304 values of GPT-2's architecture with four blocks of width 128."""
    made = {"embedding": 0.02 * weight(256, 128), "positions": 0.02 * weight(64, 128)}
    for block in map(str, range(4)):
        for name, shape in {"qkv": (128, 384), "out": (128, 128), "up": (128, 512), "down": (512, 128)}.items():
            made |= {block + name: weight(*shape), f"{block}{name}b": jnp.zeros(shape[1])}
    for norm in ("norm", *(f"{block}norm{number}" for block in range(4) for number in (1, 2))):
        made |= {norm: jnp.ones(128), norm + "b": jnp.zeros(128)}
    return made


def gpt2(p: Parameters, x: jax.Array) -> jax.Array:
    """Scores of all tokens, (tokens of the batch, 256), by the embedding."""

    def normed(x: jax.Array, name: str) -> jax.Array:
        return jax.nn.standardize(x, epsilon=1e-5) * p[name] + p[name + "b"]

    def dense(x: jax.Array, name: str) -> jax.Array:
        return x @ p[name] + p[name + "b"]

    x = p["embedding"][x] + p["positions"]
    for block in map(str, range(4)):
        heads = dense(normed(x, block + "norm1"), block + "qkv").reshape(len(x), 64, 12, 32)
        y = jax.nn.dot_product_attention(*jnp.split(heads, 3, 2), is_causal=True)
        x = x + dense(y.reshape(len(x), 64, 128), block + "out")
        x = x + dense(jax.nn.gelu(dense(normed(x, block + "norm2"), block + "up")), block + "down")
    return (normed(x, "norm") @ p["embedding"].T).reshape(-1, 256)


OF_TOKENS = {"llama_tiny": (llama, llama_parameters), "gpt2_tiny": (gpt2, gpt2_parameters)}
STAGES = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]


def resnet50_parameters() -> Parameters:
    """ResNet-50's 25,557,032 values."""
    made: Parameters = {}

    def add(name: str, *shape: int) -> None:
        made[name] = weight(*shape)
        made[name + "s"], made[name + "b"] = jnp.ones(shape[-1]), jnp.zeros(shape[-1])

    add("stem", 7, 7, 3, 64)
    wide = 64
    for stage, (width, blocks, _) in enumerate(STAGES):
        for block in range(blocks):
            name = f"{stage}.{block}."
            add(name + "a", 1, 1, wide, width)
            add(name + "b", 3, 3, width, width)
            add(name + "c", 1, 1, width, 4 * width)
            if block == 0:
                add(name + "d", 1, 1, wide, 4 * width)
            wide = 4 * width
    return made | {"fc": weight(2048, 1000), "fcb": jnp.zeros(1000)}


def resnet50(p: Parameters, x: jax.Array) -> jax.Array:
    """Scores of a batch; normalised by its own statistics."""

    def normed(x: jax.Array, name: str, stride: int = 1, pad: int = 0) -> jax.Array:
        x = conv(x, p[name], stride, pad)
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * (p[name + "s"] * lax.rsqrt(variance + 1e-5)) + p[name + "b"]

    x = pool(jax.nn.relu(normed(x, "stem", 2, 3)), 3, 2, 1)
    for stage, (_, blocks, first) in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"{stage}.{block}.", first if block == 0 else 1
            y = jax.nn.relu(normed(x, name + "a"))
            y = normed(jax.nn.relu(normed(y, name + "b", stride, 1)), name + "c")
            x = jax.nn.relu(y + (normed(x, name + "d", stride) if block == 0 else x))
    return x.mean((1, 2)) @ p["fc"] + p["fcb"]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    WORKERS = int(arguments[5]) if len(arguments) > 5 else 1
    if WORKERS > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(arguments[6], WORKERS, int(arguments[4]))
    main(arguments[0], *map(int, arguments[1:4]), WORKERS)
