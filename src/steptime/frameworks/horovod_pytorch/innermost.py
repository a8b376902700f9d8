"""Gradients whose channels are innermost, shown to Horovod in the order in which they lie."""

import torch


class InnermostChannels(object):
    """Stands where Horovod takes a compression, and copies nothing.

    Horovod refuses tensors that are not contiguous, as the gradients of images' filters are with innermost channels.
    """

    @staticmethod
    def compress(tensor):
        """Return the values of a gradient as a contiguous tensor, and whether it is another view of them."""
        if tensor.is_contiguous() or not tensor.is_contiguous(memory_format=torch.channels_last):
            return tensor, False
        return tensor.permute(0, 2, 3, 1), True

    @staticmethod
    def decompress(tensor, moved):
        """Return the gradient in its own shape."""
        return tensor.permute(0, 3, 1, 2) if moved else tensor
