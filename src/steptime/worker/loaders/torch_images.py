"""Datasets on disk as torch datasets whose items are whole batches."""

import numpy
import torch
from torch.utils.data import Dataset

from steptime.worker.loaders.photographs import cropped_by_chances, decoded
from steptime.worker.sampling import read_arrays, read_index, scale_and_shift


class _ImageBatches(Dataset):
    """A dataset that is asked for ``(epoch, indices)`` and answers with a batch ``(images, labels)``.

    ``finish`` makes the workload's inputs of byte images; None leaves them bytes, for a device to finish.
    """

    def __init__(self, transform, input_shape, channels, channels_last):
        self._transform = transform
        self._channels = channels
        self._flat = len(input_shape) == 1
        self._channels_last = channels_last and not self._flat
        self.finish = None

    def finish_on(self, device):
        """Return a callable that makes the workload's inputs of byte images on ``device``."""
        scale, shift = scale_and_shift(self._transform, self._channels)
        return _Finish(torch.from_numpy(scale).to(device), torch.from_numpy(shift).to(device), self._flat)

    def __getitem__(self, entry):
        epoch, indices = entry
        images = self._bytes(epoch, indices)
        labels = self._labels.index_select(0, torch.from_numpy(indices))
        return (images if self.finish is None else self.finish(images)), labels


class _Finish(object):
    """Normalises byte images, which keep their layout in memory, and flattens them where the workload wants that."""

    def __init__(self, scale, shift, flat):
        self._scale = scale
        self._shift = shift
        self._flat = flat

    def __call__(self, images):
        inputs = images.to(torch.float32).mul_(self._scale).add_(self._shift)
        return inputs.flatten(1) if self._flat else inputs


class ArrayBatches(_ImageBatches):
    """The whole set as one tensor, in the layout in which it is trained: a batch is one gather."""

    def __init__(self, dataset, input_shape, channels_last, _):
        images, labels = read_arrays(dataset)
        super(ArrayBatches, self).__init__(dataset["transform"], input_shape, images.shape[1], channels_last)
        if images[0].size != numpy.prod(input_shape):
            raise ValueError(
                "%s holds images of %s where the workload expects %s"
                % (dataset["path"], list(images.shape[1:]), list(input_shape))
            )
        if self._channels_last:
            images = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))
        self._images = torch.from_numpy(images)
        self._labels = torch.from_numpy(labels)

    def _bytes(self, _, indices):
        images = self._images.index_select(0, torch.from_numpy(indices))
        return images.permute(0, 3, 1, 2) if self._channels_last else images


class PhotoBatches(_ImageBatches):
    """Files decoded, resized, cropped and flipped by Pillow."""

    def __init__(self, dataset, input_shape, channels_last, seed):
        transform = dataset["transform"]
        self._height, self._width = transform["size"]
        channels = int(numpy.prod(input_shape)) // (self._height * self._width)
        super(PhotoBatches, self).__init__(transform, input_shape, channels, channels_last)
        self._paths, labels = read_index(dataset)
        self._labels = torch.from_numpy(labels)
        self._seed = seed

    def _bytes(self, epoch, indices):
        # A sample comes once per epoch, so that the first one makes the stream of a batch its own.
        stream = numpy.random.RandomState([self._seed, 15485863, epoch, int(indices[0])])
        chances = stream.random_sample((len(indices), 3))
        batch = numpy.empty((len(indices), self._height, self._width, self._channels), dtype=numpy.uint8)
        for index, chance, place in zip(indices, chances, batch):
            place[...] = self._augmented(self._paths[index], chance)
        images = torch.from_numpy(batch).permute(0, 3, 1, 2)  # Pillow's channels are innermost already
        return images if self._channels_last else images.contiguous()

    def _augmented(self, path, chances):
        transform = self._transform
        try:
            image = decoded(path, self._channels, transform["resize"], draft=True)
        except ValueError as error:
            raise RuntimeError(str(error)) from error
        return cropped_by_chances(image, transform["size"], transform["flip"], chances)
