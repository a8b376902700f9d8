"""The interface of a training step that can be broken down: what the breakdown of a step asks of a framework.

Requirements, which every ablated step meets:

- a stage does what the whole step does, less what is taken away: the same kernels, layouts, buffers and messages;
- a stage may return before its work is finished, as ``Session.step`` may;
- a stage that the framework cannot break down is left out, and its phases are null; nothing is estimated;
- all workers give the same stages, in whatever order, and call them together.
"""

import abc
from typing import Any, Callable, Dict, List, Optional, Tuple

MARKS = ("input", "h2d", "forward", "backward", "exchange", "update")
"""The marks that a step may have, in the order in which it passes them."""


class AblatedStep(abc.ABC):
    """One session's step with stages taken away; made by ``Session.ablate``, in ablation runs only."""

    marks: Tuple[str, ...] = ()
    """Those of ``MARKS`` that ``marked_step`` marks, in their order; empty where no marked step exists.

    A mark that follows another directly ends one phase; left out, its phase counts to the next one's. ``exchange``
    needs ``backward``, and each step must set those that are declared here; else the ablation run fails.

    ``input`` (the batch is there), ``h2d``, ``forward``, ``backward`` (all gradients of this worker are computed: it
    has arrived where the exchange needs it), ``exchange`` (the last gradient came back) and ``update``.
    """

    @abc.abstractmethod
    def stages(self) -> Dict[str, Callable[[], Any]]:
        """Return ``{stage: function}``; each function runs one step of its stage. Called once.

        Each of these stages does what the one before it does, and one thing more:

        ``forward``
            The forward pass and the loss, as in training, on a batch that is held (on the device).
        ``backward``
            And the gradients, which are neither exchanged nor applied.
        ``local``
            And the update of the weights with them, on this worker alone. Absent where servers update.
        ``exchange``
            And the exchange with the other workers: the whole step, still on the held batch. Absent for one worker.
        ``h2d``
            The same with the batch held in the host's memory and copied. Absent on a CPU.

        The last stage, ``step``, is the session's own and takes its batch from the loader. Two stages are alone:

        ``input``
            Taking the next batch from the loader, nothing else.
        ``communication``
            Exchanging gradients as ``exchange`` does (the same pieces), with nothing computed.
        """

    def marked_step(self, mark: Callable[..., None]) -> None:
        """Run one step as ``Session.step`` does, and call ``mark(phase)`` as each phase of ``marks`` ends.

        The framework's own view of its step: explicit phases, hooks, its profiler. Where the framework reports only
        afterwards when a phase ended, ``mark(phase, at_s)`` takes the moment, in seconds of the host's monotonic
        clock.
        """
        raise NotImplementedError

    def transfers(self) -> Optional[List[List[Any]]]:
        """Return what was exchanged in marked steps since the last call, and forget it; None if it cannot be seen.

        A list of ``[name, bytes, ready_s, done_s]``: one piece of gradients (a bucket, a key), when it could be sent
        and when its result was there, in seconds of the host's monotonic clock, in the order of ``ready_s``.
        """
        return None

    def native(self) -> Dict[str, Any]:
        """Return the durations by the framework's own timers in the marked steps since the last call; forget them.

        ``{source: {phases: seconds}}``, means over these steps, empty where the framework has no timers: ``source``
        names its log, ``phases`` the phase that a duration covers, or several joined by `` + ``, such as
        ``comm_exposed + sync_wait``. The breakdown compares these durations with its own.
        """
        return {}
