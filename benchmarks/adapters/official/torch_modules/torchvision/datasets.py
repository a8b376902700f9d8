"""Data sets of one random image, as often as a script wants it: the adapter's synthetic batches cost nothing either."""

import os

import torch
from torch.utils.data import Dataset


class _OneImage(Dataset):
    def __init__(self, size, shape, classes):
        self._size = size
        self._image = torch.randn(shape)
        self._classes = classes

    def __len__(self):
        return self._size

    def __getitem__(self, index):
        if index >= self._size:
            raise IndexError(index)
        return self._image, index % self._classes


class FakeData(_OneImage):
    """What a script asks for as random images."""

    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, *_, **__):
        super().__init__(size, image_size, num_classes)


class CIFAR10(_OneImage):
    """Images of 3x32x32 in ten classes: as many as the race has steps for, then as many as a test takes."""

    def __init__(self, *_, train=True, **__):
        batch, workers, steps = (int(os.environ[name]) for name in ("RACE_BATCH", "RACE_WORKERS", "RACE_STEPS"))
        super().__init__(batch * workers * steps if train else 4, (3, 32, 32), 10)
