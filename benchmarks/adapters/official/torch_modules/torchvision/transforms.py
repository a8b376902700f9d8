"""Transforms that do nothing: the batches of a race are made once and need none."""


def _nothing(*_, **__):
    return lambda image: image


Compose = ToTensor = Normalize = Resize = CenterCrop = RandomResizedCrop = RandomHorizontalFlip = RandomCrop = _nothing
