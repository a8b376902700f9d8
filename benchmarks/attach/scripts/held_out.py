"""Six training scripts to which no model of a step was ever fitted, small, each in the structure of a known one.

`python held_out.py KIND`, alone or by a launcher: an example of PyTorch (convolutions on digits), a loop as nanoGPT's,
the Trainer of transformers, Lightning, the references of torchvision, and an example of FSDP2.
"""

import contextlib
import math
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

STEPS = int(os.environ.get("STEPS", "40"))
LAUNCHED = "RANK" in os.environ
WORLD = int(os.environ.get("WORLD_SIZE", "1"))

torch.set_num_threads(1)
torch.manual_seed(0)


class Images(Dataset):
    """Random images, turned into floating point one by one."""

    def __init__(self, samples, *shape):
        self.pixels = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.pixels[index].float().div(255).sub(0.5).div(0.25), index % 10


def joined(net):
    """Return ``net`` as DDP has it where a launcher started this process, else as it is."""
    if not LAUNCHED:
        return net
    dist.init_process_group("gloo")
    return DistributedDataParallel(net)


def loader_of(samples, batch):
    """Return a loader, by the sampler of a distributed job where it is one."""
    sampler = DistributedSampler(samples) if LAUNCHED else None
    return DataLoader(samples, batch, sampler=sampler, shuffle=sampler is None, drop_last=True)


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.first(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    """A language model of a few blocks."""

    def __init__(self, words=512, width=128, blocks=3, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x, y=None):
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return logits, None if y is None else functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def mnist():
    """Epochs of training with a log line now and then, a test and a schedule after each."""
    net = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1)),
    )
    model = joined(net)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    training, test = loader_of(Images(24 * 20 * WORLD, 1, 28, 28), 24), DataLoader(Images(96, 1, 28, 28), 48)
    for epoch in range(math.ceil(STEPS / 20)):
        model.train()
        for index, (data, target) in enumerate(training):
            optimizer.zero_grad()
            loss = functional.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if index % 10 == 0:
                print(f"epoch {epoch}, batch {index}, loss {loss.item():.4f}", flush=True)
        model.eval()
        with torch.no_grad():
            right = sum((model(data).argmax(1) == target).sum().item() for data, target in test)
        print(f"right: {right}", flush=True)
        schedule.step()


def nanogpt():
    """Batches cut out of a file, two micro-steps, clipping, and an estimate of the loss on the first rank alone."""
    model = joined(Language())
    inner = getattr(model, "module", model)
    text = torch.randint(0, 512, (100_000,))

    def get_batch():
        starts = torch.randint(len(text) - 65, (6,)).tolist()
        return torch.stack([text[i : i + 64] for i in starts]), torch.stack([text[i + 1 : i + 65] for i in starts])

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
    x, y = get_batch()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1.0, (step + 1) / 10)
        if step % 20 == 0 and int(os.environ.get("RANK", "0")) == 0:
            inner.eval()
            with torch.no_grad():
                print("estimate", sum(inner(*get_batch())[1].item() for _ in range(3)) / 3, flush=True)
            inner.train()
        for micro in range(2):
            if LAUNCHED:
                model.require_backward_grad_sync = micro == 1
            loss = model(x, y)[1] / 2
            x, y = get_batch()
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(f"step {step}, loss {loss.item() * 2:.4f}", flush=True)


def trainer():
    """The Trainer of transformers on a small BERT, with an evaluation half-way."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Sentences(Dataset):
        def __init__(self, samples):
            self.tokens = torch.randint(0, 2000, (samples, 48))

        def __len__(self):
            return len(self.tokens)

        def __getitem__(self, index):
            return {"input_ids": self.tokens[index], "labels": index % 2}

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            max_steps=STEPS,
            eval_strategy="steps",
            eval_steps=STEPS // 2,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        sizes = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}
        model = BertForSequenceClassification(BertConfig(vocab_size=2000, **sizes))
        Trainer(model, settings, train_dataset=Sentences(4000), eval_dataset=Sentences(16 * WORLD)).train()


def lightning():
    """An autoencoder as a module of Lightning."""
    import lightning as pl

    class AutoEncoder(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 64))
            self.decoder = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784))

        def training_step(self, batch, _):
            x = batch[0].flatten(1)
            loss = functional.mse_loss(self.decoder(self.encoder(x)), x)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    hosts = int(os.environ.get("SLURM_NNODES", "1"))
    pl.Trainer(
        accelerator="cpu",
        devices=WORLD // hosts,
        num_nodes=hosts,
        strategy="ddp" if WORLD > 1 else "auto",
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(AutoEncoder(), DataLoader(Images(20_000, 28, 28), 256, shuffle=True))


def torchvision():
    """One epoch as the references of classification have it, on a small residual network with batch norms."""

    class Residual(nn.Module):
        def __init__(self, inner, outer):
            super().__init__()
            self.one = nn.Sequential(nn.Conv2d(inner, outer, 3, 1 if inner == outer else 2, 1), nn.BatchNorm2d(outer))
            self.two = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1), nn.BatchNorm2d(outer))
            self.side = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1, 2)

        def forward(self, x):
            return torch.relu(self.two(torch.relu(self.one(x))) + self.side(x))

    net = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), Residual(32, 32), Residual(32, 64)),
        *(Residual(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )
    model = joined(net)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=STEPS)
    meters = {"loss": [], "right": [], "images per second": []}
    for image, target in loader_of(Images(16 * STEPS * WORLD, 3, 32, 32), 16):
        begin = time.time()
        output = model(image.flip(3))
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        meters["right"].append((output.topk(5).indices == target[:, None]).any(1).float().mean().item())
        meters["loss"].append(loss.item())
        meters["images per second"].append(len(image) / (time.time() - begin))
        if len(meters["loss"]) % 10 == 0:
            print({name: round(sum(values) / len(values), 3) for name, values in meters.items()}, flush=True)
        warmup.step()


def fsdp2():
    """A transformer whose blocks are sharded one by one, on random tokens."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model = Language()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        x = torch.randint(0, 512, (6, 64))
        loss = model(x)[0].sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    {each.__name__: each for each in (mnist, nanogpt, trainer, lightning, torchvision, fsdp2)}[sys.argv[1]]()
    with contextlib.suppress(AssertionError, ValueError):
        if dist.is_initialized():
            dist.destroy_process_group()
