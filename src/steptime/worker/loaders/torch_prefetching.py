"""Batches copied to a CUDA device while the batch before is trained."""

import torch


def on_device(batches, device, finish):
    """Yield ``(finish(images), labels)`` of pinned ``batches`` on ``device``, one batch ahead of the training.

    Copying and normalising run on a stream of their own, so that they share no time with the training unless the
    device is full.
    """
    side = torch.cuda.Stream(device)
    ahead = _send(next(batches), device, finish, side)
    while True:
        training = torch.cuda.current_stream(device)
        training.wait_stream(side)
        ready = ahead
        for tensor in ready:
            # The memory was taken on the side stream; without this it could be reused before training has read it.
            tensor.record_stream(training)
        ahead = _send(next(batches), device, finish, side)
        yield ready


def _send(batch, device, finish, side):
    images, labels = batch
    with torch.cuda.stream(side):
        return finish(images.to(device, non_blocking=True)), labels.to(device, non_blocking=True)
