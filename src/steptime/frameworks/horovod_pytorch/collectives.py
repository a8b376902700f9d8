"""Messages as Horovod's optimizer for PyTorch sends gradients: announced by name, then summed in place.

A gradient with innermost channels is shown to Horovod as a contiguous view, in the order in which its values lie.
"""

import horovod
import torch

from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.worker.back_end import FED, BackEnd, Message


class HorovodBackEnd(BackEnd):
    """One worker in Horovod."""

    def __init__(self, job, context):
        torch.set_num_threads(job["threads"])
        torch.set_num_interop_threads(1)
        self._workers = HorovodWorkers("torch", context, job)

    def message(self, operation, count):
        if operation != "allreduce":
            raise ValueError("Horovod has no operation %r" % operation)
        return HorovodAllreduce(self._workers.hvd, count)

    def facts(self):
        return dict(self._workers.facts, framework_version=horovod.__version__, torch=torch.__version__)

    def close(self):
        self._workers.leave()

    def abort(self):
        """Leave it to the end of this process: Horovod's farewell waits for the others."""


class HorovodAllreduce(Message):
    """A gradient, announced by its name in every run as in every step."""

    becomes = FED

    def __init__(self, hvd, count):
        self._hvd = hvd
        self._name = "message.%d" % count
        self._values = torch.zeros(count)

    def fill(self, values):
        self._values.copy_(torch.from_numpy(values))

    def run(self):
        self._hvd.synchronize(self._hvd.allreduce_async_(self._values, op=self._hvd.Sum, name=self._name))

    def result(self):
        return self._values.numpy()


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
