"""What DistributedDataParallel's own timers say of a step, of those steps alone that are asked about."""

SOURCE = "DDP log"
_EVERY_STEP = 1
_NEVER = 2**30
"""Steps from one that DDP times to the next; it times its first ten in any case."""
_NANOSECOND = 1e-9


class OwnLog(object):
    """Switches DDP's timers on around a step and reads them after it.

    DDP times its own forward pass (without the loss), the time from its end until autograd has ended (the loss and
    the backward pass, slowed down as they are by what is sent beside them), and the time from the first bucket that
    is sent until the last one is back. What of the last does not lie in the backward pass is exposed.
    """

    def __init__(self, module):
        """Take over the timers of ``module``, a DistributedDataParallel."""
        self._module = module
        self._steps = []
        self._last = None
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

    def told(self):
        """Return what ``Session.native`` does."""
        steps, self._steps = self._steps, []
        if not steps:
            return {}
        means = [_NANOSECOND * sum(part) / len(steps) for part in zip(*steps)]
        return {SOURCE: dict(zip(("forward", "backward", "comm_exposed + sync_wait"), means))}

    def _sample(self, steps):
        self._module._set_ddp_runtime_logging_sample_rate(steps)  # noqa: SLF001 - as above
