"""The ablated step of FSDP2, by collectives of our own in place of FSDP's, which may be left out."""

import time
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from steptime.libraries.torch.ablation import UNSYNCHRONIZED, TorchAblation


class ShardAblation(TorchAblation):
    """The stages of FSDP2, hooked in where it takes collectives of others.

    What is left out is the communication alone: FSDP copies into its buffers and out of them as ever. Its forward
    pass waits for weights, and its backward pass for weights and gradients, so that nothing can be marked in between.
    """

    update_marks = ("input",)

    def __init__(self, strategy, module):
        """Hook into ``module``, of which ``strategy`` has sharded the parts."""
        super(ShardAblation, self).__init__(strategy)
        self._module = module
        self._wire = _Wire()
        self._whole_step = []
        self.pieces = []
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_custom_all_gather(_Gathering(self._wire))
                part.set_custom_reduce_scatter(_ShardReduction(self._wire))

    def enter(self, stage):
        self._wire.quiet = stage in UNSYNCHRONIZED
        self._wire.calls, self._wire.seen = [], []

    def leave(self, stage):
        if stage == "forward":
            self._module.reshard()  # the backward pass does it in training, of the weights that the root holds
        self._wire.quiet = False
        if stage == "exchange":
            self._whole_step = self._wire.calls
        self.pieces += self._wire.seen if stage == "marked" else []
        self._wire.calls = self._wire.seen = None

    def communication(self):
        if not self.several:
            return None
        held = {}

        def communicate():
            for index, (call, shapes) in enumerate(self._whole_step):
                if index not in held:
                    held[index] = [torch.zeros(size, dtype=kind, device=device) for size, kind, device in shapes]
                call(*held[index])

        return communicate

    def marked_update(self, loss, _):
        self.strategy.update(loss)


class _Wire(object):
    """What is sent, or is not.

    ``quiet``
        Whether nothing is sent.
    ``calls``
        Of the step that is under way, ``(function, what its tensors are like)``; None if they are not noted.
    ``seen``
        Likewise ``[name, bytes, ready_s, done_s]``.
    """

    def __init__(self):
        self.quiet = False
        self.calls: Any = None
        self.seen: Any = None

    def send(self, name, whole, call, *tensors):
        """Call ``call`` with ``tensors``; ``whole`` is the one that is as long as what all workers have together."""
        ready = time.monotonic()
        work = call(*tensors)
        if self.calls is not None:
            self.calls.append((call, [(each.shape, each.dtype, each.device) for each in tensors]))
            number = sum(piece[0].startswith(name) for piece in self.seen)
            size = whole.numel() * whole.element_size()
            self.seen.append(["%s %d" % (name, number), size, ready, time.monotonic()])
        return work


class _Gathering(DefaultAllGather):
    """Gathers weights; a quiet one finds the weights of others where they lay when it gathered last.

    Fresh memory would hold anything, and anything slows arithmetic down.
    """

    def __init__(self, wire):
        super(_Gathering, self).__init__()
        self._wire = wire
        self._kept: Any = None
        self._filled = False

    def allocate(self, size, **how):
        if not self._wire.quiet:
            return super(_Gathering, self).allocate(size, **how)
        if self._kept is None:
            self._kept = super(_Gathering, self).allocate(size, **how)
        return self._kept

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        def gather(output, own):
            return super(_Gathering, self).__call__(output, own, group, async_op)

        if not self._wire.quiet:
            return self._wire.send("weights", output_tensor, gather, output_tensor, input_tensor)
        if self._filled:
            return None
        self._filled = True
        return gather(output_tensor, input_tensor)


class _ShardReduction(DefaultReduceScatter):
    """Reduces gradients; a quiet one gives the worker's own part of its own gradients, which is not even copied."""

    def __init__(self, wire):
        super(_ShardReduction, self).__init__()
        self._wire = wire
        self._mine: Any = None

    def allocate(self, size, **how):
        """Allocate memory for the gradients, and in every second call for the worker's part of them."""
        if not self._wire.quiet:
            return super(_ShardReduction, self).allocate(size, **how)
        if self._mine is None:
            self._mine = super(_ShardReduction, self).allocate(size, **how)
            return self._mine
        (count,), whole, self._mine = size, self._mine, None
        return whole[-count:]

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        def reduce(output, whole):
            return super(_ShardReduction, self).__call__(output, whole, group, op, async_op)

        if self._wire.quiet:
            return None
        return self._wire.send("gradients", input_tensor, reduce, output_tensor, input_tensor)
