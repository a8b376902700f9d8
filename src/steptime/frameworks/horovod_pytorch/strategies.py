"""How workers train with Horovod: alone, without it, or with its optimizer; and the ablated step of that optimizer."""

import time
from typing import Any, List

import horovod
import torch

from steptime.libraries.horovod.workers import HorovodWorkers
from steptime.libraries.torch.ablation import UNSYNCHRONIZED, TorchAblation
from steptime.libraries.torch.strategy import TorchStrategy
from steptime.worker.process_context import micro_batches


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


class InnermostHalf(InnermostChannels):
    """Sends gradients of float32 as fp16, as Horovod's own compression does, and moves their channels too."""

    @staticmethod
    def compress(tensor):
        """Return the values in half precision, and what ``decompress`` needs."""
        row, moved = InnermostChannels.compress(tensor)
        return row.half(), (moved, tensor.dtype)

    @staticmethod
    def decompress(tensor, how):
        """Return the gradient in its own shape and precision."""
        moved, kind = how
        return InnermostChannels.decompress(tensor.to(kind), moved)


_COMPRESSIONS = {"none": InnermostChannels, "fp16": InnermostHalf}


class HandleAblation(TorchAblation):
    """The stages of gradients that Horovod averages while others are still computed.

    Where nothing is sent, a gradient is shown to Horovod and taken back as ever, and its average is itself.
    """

    update_marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, strategy, mpi, names):
        """Hook into the optimizer of ``strategy``.

        Args:
            strategy: which averages with Horovod's optimizer.
            mpi: Horovod's ``mpi_ops`` for torch.
            names: ``{parameter: name}``.
        """
        super(HandleAblation, self).__init__(strategy)
        self._mpi = mpi
        self._names = names
        self._optimizer = strategy.optimizer
        self._compression = _COMPRESSIONS[strategy.job["options"]["compression"]]
        self._element_bytes = self._compression.compress(torch.zeros(1))[0].element_size()
        self._sends = True
        # The one place where Horovod's optimizer starts a gradient on its way.
        self._start = self._optimizer._allreduce_grad_async  # noqa: SLF001
        self._optimizer._allreduce_grad_async = self._begin  # noqa: SLF001
        self._order: Any = None
        self._whole_step = []
        self._watched: Any = None
        self._back = 0
        self.pieces = []

    def enter(self, stage):
        self._sends = stage not in UNSYNCHRONIZED
        self._order = [] if stage == "exchange" else None
        self._watched, self._back = [] if stage == "marked" else None, 0

    def leave(self, stage):
        self._sends = True
        if stage == "exchange":
            self._whole_step, self._order = self._order, None
        if stage == "marked":
            self.pieces += [piece[:4] for piece in self._watched]
            self._watched = None

    def backward(self, loss):
        """Compute gradients, take them back from Horovod, and give their memory back as training does."""
        loss.backward()
        self._optimizer.synchronize()
        self._optimizer._synchronized = False  # noqa: SLF001 - an update would set it back
        self.strategy.drop_gradients()

    def communication(self):
        if not self.several:
            return None
        held: List[Any] = []

        def communicate():
            if not held:
                for parameter in self._whole_step:
                    row, _ = self._compression.compress(torch.zeros_like(parameter.data))
                    held.append((self._names[parameter], row))
            # Under the names of the gradients, of which Horovod knows already who sends what.
            handles = [self._mpi.allreduce_async_(row, name=name, op=self._optimizer.op) for name, row in held]
            for handle in handles:
                self._mpi.synchronize(handle)

        return communicate

    def marked_update(self, loss, mark):
        loss.backward()
        mark("backward")
        self._optimizer.synchronize()
        mark("exchange")
        self.strategy.apply(synchronized=True)
        self.strategy.drop_gradients()
        mark("update")

    def _begin(self, parameter):
        """Stand for Horovod's own beginning of a gradient's way: return a handle and how to undo its compression."""
        if self._order is not None:
            self._order.append(parameter)
        if not self._sends:
            row, undone = self._compression.compress(parameter.grad)
            return (lambda: row), undone
        ready = time.monotonic()
        handle, undone = self._start(parameter)
        if self._watched is None:
            return handle, undone
        self._look()
        piece = [self._names[parameter], parameter.grad.numel() * self._element_bytes, ready, None, handle]
        self._watched.append(piece)
        return (lambda: self._finish(piece)), undone

    def _look(self):
        """Note which gradients came back meanwhile; Horovod does not report it by itself."""
        now = time.monotonic()
        while self._back < len(self._watched) and self._mpi.poll(self._watched[self._back][4]):
            self._watched[self._back][3] = now
            self._back += 1

    def _finish(self, piece):
        row = self._mpi.synchronize(piece[4])
        piece[3] = piece[3] or time.monotonic()
        return row


class SingleWorker(TorchStrategy):
    """One worker, which exchanges no gradients."""

    def facts(self):
        return dict(super(SingleWorker, self).facts(), framework_version=horovod.__version__, torch=torch.__version__)


class HorovodAverage(SingleWorker):
    """Every gradient starts on its way as soon as it is there; the update waits for the last one."""

    def __init__(self, job, context, device):
        super(HorovodAverage, self).__init__(job, context, device)
        self._workers = HorovodWorkers("torch", context, job)

    def prepare(self, built):
        module = super(HorovodAverage, self).prepare(built)
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        self.optimizer = self._workers.hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=module.named_parameters(),
            compression=_COMPRESSIONS[self.job["options"]["compression"]],
            groups=self.job["options"]["groups"] or None,
            backward_passes_per_step=micro_batches(self.job),
        )
        return module

    def apply(self, synchronized=False):
        """Update the weights with the gradients of all workers; ``synchronized`` if they have come already."""
        if not (synchronized or "clip_norm" in self.job["optimizer"]):
            self.optimizer.step()
            return
        if not synchronized:
            self.optimizer.synchronize()
        self.clip()
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def drop_gradients(self):
        self.optimizer.zero_grad()  # gives the memory back, as torch's does by default; it takes no arguments

    def ablate(self):
        """Return the ablation; None if gradients are grouped: Horovod has no stand-in for a group's exchange."""
        if self.job["options"]["groups"]:
            return None
        return HandleAblation(self, self._workers.hvd.mpi_ops, self._names)

    def facts(self):
        # As read back from Horovod's optimizer: for each parameter of a group, the parameters of that group.
        groups = self.optimizer._p_to_group  # noqa: SLF001 - Horovod has no other way to them
        return dict(
            super(HorovodAverage, self).facts(),
            running_statistics="per worker",
            grouped_messages=len(set(groups.values())),
            compression=self.job["options"]["compression"],
            **self._workers.facts,
        )

    def leave(self):
        self._workers.leave()

    def abort(self):
        """Leave it to the end of this process: Horovod's farewell waits for the others, who may wait for this one."""


STRATEGIES = {"single": SingleWorker, "allreduce": HorovodAverage}
