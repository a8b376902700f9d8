"""Modules of three libraries: torchvision, timm and Hugging Face's transformers, small enough for a processor."""

import torch

CLASSES, SIDE, TOKENS, VOCABULARY = 10, 32, 32, 256


def resnet18():
    """Return torchvision's ResNet-18, which normalises over batches."""
    from torchvision.models import resnet18 as made

    return made(num_classes=CLASSES)


def vit():
    """Return a vision transformer of timm."""
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=SIDE, patch_size=8, depth=2, num_classes=CLASSES)


def gpt2():
    """Return a GPT-2 of transformers, whose output has the loss."""
    from transformers import AutoModelForCausalLM, GPT2Config

    return AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=VOCABULARY, n_positions=TOKENS, n_embd=64, n_layer=2, n_head=2)
    )


def images(rank, size, batch):
    """Yield images and their classes, of each worker from a seed of its own."""
    stream = torch.Generator().manual_seed(rank)
    while True:
        yield (
            torch.randn(batch, 3, SIDE, SIDE, generator=stream),
            torch.randint(CLASSES, (batch,), generator=stream),
        )


def tokens(rank, size, batch):
    """Yield what a model of transformers takes by name."""
    stream = torch.Generator().manual_seed(rank)
    while True:
        ids = torch.randint(VOCABULARY, (batch, TOKENS), generator=stream)
        yield {"input_ids": ids, "labels": ids}
