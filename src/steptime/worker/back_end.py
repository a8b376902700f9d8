"""The interface between the message benchmark and a framework's communication library.

Requirements, which every back end meets:

- messages go the way that gradients go when the framework trains: the same library, buffers and settings;
- ``run`` returns when the result is on this worker, so that back-to-back runs follow each other as steps do; but for
  ``allreduce_queued``, whose runs follow each other on a device as buckets do in one step;
- nothing in a back end measures time: ``message_timing.py`` does, in the same way for all frameworks.

``Framework.open_back_end`` returns a back end; the manifest's ``[back_ends]`` name it and its operations.
"""

import abc
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from steptime.worker.clock import HostClock, StepClock

if TYPE_CHECKING:
    import numpy

REPLACED = "replaced"
FED = "fed back"
ADDED = "added up"


class BackEnd(abc.ABC):
    """One worker's connection to the others through one back end."""

    messages: Dict[str, Callable[[Any, int], "Message"]] = {}
    """By operation, what makes its ``Message`` of this object and a number of float32 values. Operations are those that
    the manifest names:

    ``allreduce``
        Every worker contributes; every worker gets the sum.
    ``allreduce_queued``
        The same, each issued before the one in front has ended.
    ``push_pull``
        Every worker pushes to the servers, and pulls what they made of all pushes.
    ``incast``
        All workers but the first send to the first at once, which gets all rows; it ends when all know that.
    """

    def message(self, operation: str, count: int) -> "Message":
        """Return a ``Message`` of ``count`` float32 values; all workers call it in the same order.

        Raises ValueError for an operation that the back end does not have.
        """
        if operation not in self.messages:
            raise ValueError(
                "%s has no operation %r, only %s" % (type(self).__name__, operation, ", ".join(sorted(self.messages)))
            )
        return self.messages[operation](self, count)

    @abc.abstractmethod
    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts; at least ``framework_version``."""

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Release processes and connections at the end; all workers call it."""

    def abort(self) -> None:  # noqa: B027 - the end of the process is what most wait for
        """Release what this worker alone can release after a failure, without waiting for others.

        Leaving a group waits for others, who may wait for this worker: most back ends stay until the process ends.
        """


class Message(abc.ABC):
    """One buffer that is exchanged again and again."""

    becomes = REPLACED
    """What a run makes of the result before: ``REPLACED`` by the sum of what was filled in; ``FED`` back, so that the
    next run sums results (in place); or the sum is ``ADDED`` to it."""

    @abc.abstractmethod
    def fill(self, values: "numpy.ndarray") -> None:
        """Contribute ``values``, a float32 array, from the next run on."""

    @abc.abstractmethod
    def run(self) -> None:
        """Exchange once; return when the result is on this worker."""

    def clock(self) -> StepClock:
        """Return the clock that notes the ends of runs; that of a device where ``run`` does not wait for it."""
        return HostClock(lambda: None)

    @abc.abstractmethod
    def result(self) -> Optional["numpy.ndarray"]:
        """Return the result as a float32 array; None on workers that get none."""
