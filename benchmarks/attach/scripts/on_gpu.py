"""Scripts on a GPU that time themselves by events, to hold `steptime attach` against: ``python on_gpu.py KIND``.

Each prints a line of JSON: seconds of a step by the host's clock between two synchronisations, and the device's
seconds of forward, backward and update by events of its own, as means over the steps behind the warm-up.
"""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, WARM, BATCH = 120, 20, 64
SIDE = 128


class Pictures(Dataset):
    """One random picture again and again, each of which takes ``seconds`` to decode."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.picture = torch.randn(3, SIDE, SIDE)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return self.picture, index % 10


class Clock:
    """Events around parts of steps, read when all is done."""

    def __init__(self):
        self.marks = []

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def means(self, parts):
        """Return the mean seconds of each part; every step has one mark more than parts."""
        torch.cuda.synchronize()
        of_a_step = len(parts) + 1
        steps = [self.marks[at : at + of_a_step] for at in range(0, len(self.marks), of_a_step)][WARM:]
        return {
            name: sum(step[at].elapsed_time(step[at + 1]) for step in steps) / len(steps) / 1e3
            for at, name in enumerate(parts)
        }


def network():
    """ResNet-50 of torchvision."""
    import torchvision

    return torchvision.models.resnet50(num_classes=10).cuda()


def loop(*, load_s=0.0, helpers=0, wrap=lambda net: net, item=False):
    """The usual loop in bf16 by autocast."""
    net = wrap(network())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Pictures(load_s), batch_size=BATCH, num_workers=helpers, pin_memory=True)
    clock = Clock()
    started, losses = None, []
    for number, batch in enumerate(loader):
        if number == WARM:
            torch.cuda.synchronize()
            started = time.perf_counter()
        x, y = (each.cuda(non_blocking=True) for each in batch)
        clock.mark()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        clock.mark()
        loss.backward()
        clock.mark()
        optimizer.step()
        clock.mark()
        optimizer.zero_grad()
        if item:
            losses.append(loss.item())
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - started) / (STEPS - WARM)
    say(step_s, clock.means(["forward", "backward", "update"]))


def item():
    """The loop that reads its loss in every step, and so waits for the device."""
    loop(item=True)


def loading():
    """The loop whose loader, in the process, takes longer than the step."""
    loop(load_s=0.002)


def helped():
    """The same loader with eight helper processes."""
    loop(load_s=0.002, helpers=8)


def ddp():
    """DistributedDataParallel over NCCL, of one process if no launcher says otherwise."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.distributed.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda:0"))
    loop(wrap=nn.parallel.DistributedDataParallel)
    torch.distributed.destroy_process_group()


def compiled():
    """The loop whose network is compiled."""
    loop(wrap=torch.compile)


def whole(step_of):
    """Steps that are one call of what ``step_of(net, optimizer, x)`` returns."""
    net = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(1024, 1024), nn.ReLU())]).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    x = torch.randn(256, 1024, device="cuda")
    step = step_of(net, optimizer, x)
    loader = DataLoader(torch.randn(STEPS * 256, 1024), batch_size=256, pin_memory=True)
    clock, started = Clock(), None
    for number, batch in enumerate(loader):
        if number == WARM:
            torch.cuda.synchronize()
            started = time.perf_counter()
        x.copy_(batch, non_blocking=True)
        clock.mark()
        step()
        clock.mark()
    torch.cuda.synchronize()
    say((time.perf_counter() - started) / (STEPS - WARM), clock.means(["step"]))


def graph():
    """A whole step as a CUDA graph that is replayed."""

    def step_of(net, optimizer, x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                net(x).square().mean().backward()
                optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(captured):
            net(x).square().mean().backward()
            optimizer.step()
        return captured.replay

    whole(step_of)


def trainer():
    """Hugging Face's Trainer on a GPT-2 of six layers."""
    import tempfile

    import transformers

    config = transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8192, n_positions=512)
    net = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 8192, (STEPS * 8, 512))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            max_steps=STEPS,
            bf16=True,
            report_to=[],
            save_strategy="no",
            logging_steps=STEPS,
        )
        made = transformers.Trainer(net, arguments, train_dataset=rows)
        started = time.perf_counter()
        made.train()
        torch.cuda.synchronize()
    say((time.perf_counter() - started) / STEPS, {})


def jax():
    """A jitted step on the device that takes its state over."""
    import jax as lib
    import jax.numpy as jnp
    import numpy as np
    import optax

    def loss_of(weights, x):
        for w in weights:
            x = lib.nn.relu(x @ w)
        return jnp.square(x).mean()

    weights = [0.03 * lib.random.normal(key, (4096, 4096)) for key in lib.random.split(lib.random.key(0), 8)]
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(weights)

    @lib.jit
    def train_step(weights, state, x):
        loss, gradients = lib.value_and_grad(loss_of)(weights, x)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    batches = np.random.default_rng(0).standard_normal((8, 2048, 4096), dtype="float32")
    started = None
    for number in range(STEPS):
        if number == WARM:
            lib.block_until_ready(weights)
            started = time.perf_counter()
        weights, state, loss = train_step(weights, state, batches[number % 8])
    lib.block_until_ready(weights)
    say((time.perf_counter() - started) / (STEPS - WARM), {"loss": float(loss)})


def say(step_s, parts):
    """Print what was timed."""
    print(json.dumps({"kind": sys.argv[1], "step_s": step_s, "device_s": parts}), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
