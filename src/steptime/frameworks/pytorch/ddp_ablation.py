"""The ablated step of DistributedDataParallel, by a communication hook that sees every bucket and may not send it.

DistributedDataParallel's own timers are read around the marked steps alone.
"""

import time
from typing import Any, Dict

import torch
from torch import distributed

from steptime.libraries.torch.ablation import UNSYNCHRONIZED, TorchAblation

SOURCE = "DDP log"
_EVERY_STEP = 1
_NEVER = 2**30
"""Steps from one that DDP times to the next; it times its first ten in any case."""
_NANOSECOND = 1e-9


class DdpTimers(object):
    """Switches DDP's timers on around a step and reads them after it.

    DDP times its own forward pass (without the loss), the time from its end until autograd has ended (the loss and
    the backward pass, slowed down as they are by what is sent beside them), and the time from the first bucket that
    is sent until the last one is back. What of the last does not lie in the backward pass is exposed.
    """

    def __init__(self, module):
        """Take over the timers of ``module``, a DistributedDataParallel."""
        self._module = module
        self._steps = []
        self._last: Any = None
        self._sample(_NEVER)

    def begin(self):
        """Time the step that follows."""
        self._sample(_EVERY_STEP)

    def end(self):
        """Note what DDP timed since ``begin``, which it would otherwise do at the start of the next step."""
        self._module.logger.set_runtime_stats_and_log()
        seen = self._module._get_ddp_logging_data()  # noqa: SLF001 - torch has no other way to its timers
        self._sample(_NEVER)
        if "backward_comm_time" not in seen or seen["iteration"] == self._last:
            return  # a forward pass that was compiled may go by DDP's timers
        self._last = seen["iteration"]
        self._steps.append(
            (
                seen["forward_compute_time"],
                seen["backward_compute_time"],
                seen["backward_comm_time"] - seen["backward_compute_comm_overlap_time"],
            )
        )

    def take_means(self):
        """Return what ``Session.native`` does."""
        steps, self._steps = self._steps, []
        if not steps:
            return {}
        means = [_NANOSECOND * sum(part) / len(steps) for part in zip(*steps)]
        return {SOURCE: dict(zip(("forward", "backward", "comm_exposed + sync_wait"), means))}

    def _sample(self, steps):
        self._module._set_ddp_runtime_logging_sample_rate(steps)  # noqa: SLF001 - as above


class BucketAblation(TorchAblation):
    """The stages of DistributedDataParallel.

    The same hook is in force in every stage, so that the stages differ in the sending alone: DDP fills its buckets in
    all of them. The hook adds up and does not divide, because a division by itself would be one more pass over all
    values: the learning rate and the decay do it, as all is linear in the sum.
    """

    update_marks = ("input", "forward", "backward", "exchange", "update")

    def __init__(self, strategy, module):
        """Hook into ``module``, the DistributedDataParallel of ``strategy``."""
        super(BucketAblation, self).__init__(strategy)
        self._workers = strategy.context.workers
        self.pieces = []
        for group in strategy.optimizer.param_groups:
            group["lr"] /= self._workers
            group["weight_decay"] *= self._workers
        self._hook = _Hook()
        module.register_comm_hook(None, self._hook.take)
        self._timers = DdpTimers(module)

    def enter(self, stage):
        self._hook.sends = stage not in UNSYNCHRONIZED
        if stage == "marked":
            self._timers.begin()

    def leave(self, stage):
        self._hook.sends = True
        if stage == "marked":
            self._timers.end()

    def communication(self):
        if self._workers == 1:
            return None
        rows: Dict[Any, Any] = {}

        def communicate():
            works = []
            for index, (size, kind, device) in enumerate(self._hook.buckets):
                if rows.get(index) is None or len(rows[index]) != size:
                    rows[index] = torch.zeros(size, dtype=kind, device=device)
                works.append(distributed.all_reduce(rows[index], async_op=True))
            for work in works:
                work.wait()

        return communicate

    def marked_update(self, loss, mark):
        self._hook.seen, self._hook.at_last = [], mark
        loss.backward()
        mark("exchange")
        self._hook.at_last = None
        self.pieces += self._hook.seen
        self.apply_gradients()
        mark("update")

    def native(self):
        return self._timers.take_means()


class _Hook(object):
    """DDP calls ``take`` with each bucket that is full, in the buckets' order.

    ``sends``
        Whether buckets are sent; otherwise each is taken as it is.
    ``at_last``
        A function that takes ``"backward"`` and the moment at which the last bucket was full; None outside marked
        steps.
    ``seen``
        Of the newest marked step ``[name, bytes, ready_s, done_s]`` for each bucket.
    ``buckets``
        Of the newest backward pass ``(values, type, device)`` for each bucket.
    """

    def __init__(self):
        self.sends = True
        self.at_last: Any = None
        self.seen = []
        self.buckets = []

    def take(self, _, bucket):
        """Return a future of the bucket, summed over the workers or as it is."""
        ready, row = time.monotonic(), bucket.buffer()
        if bucket.index() == 0:
            self.buckets = []
        self.buckets.append((row.numel(), row.dtype, row.device))
        if not self.sends:
            future = torch.futures.Future()
            future.set_result(row)
            return future
        if self.at_last is not None and bucket.is_last():
            self.at_last("backward", ready)
        future = distributed.all_reduce(row, async_op=True).get_future()
        if self.at_last is None:
            return future.then(_first)
        piece = ["bucket %d" % bucket.index(), row.numel() * row.element_size(), ready, None]
        self.seen.append(piece)

        def done(finished):
            piece[3] = time.monotonic()
            return finished.value()[0]

        return future.then(done)


def _first(future):
    return future.value()[0]
