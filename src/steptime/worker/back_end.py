"""The seam between the network benchmark and a framework's back end of communication.

A room whose manifest names ``[exchanges]`` has two more functions in its ``adapter.py``::

    def open_exchange(job, context):   # -> Exchange, for role "worker"
    def serve_exchange(job, context):  # blocks until the launch is over, for roles "server" and "scheduler"

``serve_exchange`` may be absent where no exchange of the room needs servers. The requirements are those of
``session.py``: the framework is imported inside, nothing measures time, and messages go the way that gradients go when
the room trains, with the same library, buffers and settings.
"""

import abc

REPLACED = "replaced"
FED = "fed back"
ADDED = "added up"


class Exchange(abc.ABC):
    """One worker's connection to the others through one back end."""

    @abc.abstractmethod
    def message(self, operation, count):
        """Return a ``Message`` of ``count`` float32 values; all workers call it in the same order.

        ``operation`` is one that the manifest names:

        ``allreduce``
            Every worker contributes; every worker gets the sum.
        ``push_pull``
            Every worker pushes to the servers, and pulls what they made of all pushes.
        ``incast``
            All workers but the first send to the first at once, which gets all rows; it ends when all know that.
        """

    @abc.abstractmethod
    def facts(self):
        """Return JSON-ready facts; at least ``framework_version``."""

    def close(self):  # noqa: B027 - some hold nothing
        """Release processes and connections at the end; all workers call it."""

    def abort(self):
        """Release what this worker alone can release after a failure, without waiting for others."""
        self.close()


class Message(abc.ABC):
    """One buffer that is exchanged again and again."""

    becomes = REPLACED
    """What a run makes of the result before: ``REPLACED`` by the sum of what was filled in; ``FED`` back, so that the
    next run sums results (in place); or the sum is ``ADDED`` to it."""

    @abc.abstractmethod
    def fill(self, values):
        """Contribute ``values``, a float32 array, from the next run on."""

    @abc.abstractmethod
    def run(self):
        """Exchange once; return when the result is on this worker."""

    @abc.abstractmethod
    def result(self):
        """Return the result as a float32 array; None on workers that get none."""
