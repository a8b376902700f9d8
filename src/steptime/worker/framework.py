"""What a framework gives to the worker: one typed description, at the end of its ``adapter.py``.

Requirements, which every framework's description meets:

- ``steptime/frameworks/NAME/adapter.py`` ends in ``FRAMEWORK = Framework(open_session, …)``; nothing in the adapter is
  found by its name but this one;
- the module can be imported where the framework is not installed: each function imports the framework itself;
- the functions take the job (``job.json`` as a dictionary) and the ``ProcessContext`` of their process, and raise
  ValueError for a job that the framework cannot do, RuntimeError when processes do not find each other;
- no function measures time, writes records or ends the process: the worker does.

What a framework gives to its tests: one typed description, at the end of the ``contract.py`` in its folder.

The contract suite, ``steptime check`` and the programs of ``benchmarks/equivalence`` read it; no training does.

Requirements, which every description meets:

- the module can be imported where the framework is not installed: each function imports the framework itself;
- the functions run in the framework's environment, in a process of their own, and may change the framework there;
- a fault is planted in what the framework itself computes or exchanges, never in what the check reads from it.

The interface between the message benchmark and a framework's communication library.

Requirements, which every back end meets:

- messages go the way that gradients go when the framework trains: the same library, buffers and settings;
- ``run`` returns when the result is on this worker, so that back-to-back runs follow each other as steps do; but for
  ``allreduce_queued``, whose runs follow each other on a device as buckets do in one step;
- nothing in a back end measures time: ``message_timing.py`` does, in the same way for all frameworks.

``Framework.open_back_end`` returns a back end; the manifest's ``[back_ends]`` name it and its operations.
"""

import abc
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from steptime.worker.clock import HostClock, StepClock
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session

if TYPE_CHECKING:
    import numpy

Arrays = List[Any]

FROZEN_LAYER = "last layer frozen"
"""The last layer, which has a weight and a bias, does not learn."""
KEPT_GRADIENT = "gradient of one array not exchanged"
"""The gradient of the last bias stays on its worker, or does not leave the workers behind the first."""
ZEROS_SENT = "a worker sends zeros"
"""The last worker's gradients are zero on their way to the servers."""
PUSH_TWICE = "server applies a push twice"
NEVER_PULLED = "async worker never pulls"
"""An asynchronous worker, the first, goes on with its own weights."""
STALE_WEIGHTS = "stale weights by one step"
"""A step is computed at the weights of one step before; planted by ``Contract.weights``."""
EARLY_UPDATE = "update before the exchange ends"
"""Planted by another strategy, unless ``Contract.faults`` has a way of its own."""

CLIPPED_APART = "a norm clipped per worker"
"""Each worker shortens its own gradient, before the exchange."""

OF_SERVERS = (ZEROS_SENT, PUSH_TWICE, NEVER_PULLED)


class Contract(NamedTuple):
    """How one framework is tested."""

    batches: Optional[Callable[[Job, ProcessContext], Iterator[Tuple[Any, Any]]]] = None
    """Open the loader of ``job["loader"]`` as a session does, and return its batches as pairs of numpy arrays: images
    (batch, channels, height, width) and classes (batch,). None if ``synthetic`` is the only loader."""
    weights: Optional[Callable[[Session], Tuple[Callable[[], Arrays], Callable[[Arrays], None]]]] = None
    """Return two functions for the live weights with which a session computes: one that returns copies of them as numpy
    arrays, and one that overwrites them with such arrays."""
    faults: Dict[str, Callable[[Job, ProcessContext], None]] = {}
    """By fault, what plants it before the session is opened; called in every process of a launch, servers included."""
    session_faults: Dict[str, Callable[[Session, Job, ProcessContext], None]] = {}
    """By fault, what plants it in a session that is open, where only its own objects can be changed."""

    def planted(self) -> Set[str]:
        """Return the names of the faults that the description itself plants."""
        stale = {STALE_WEIGHTS} if self.weights else set()
        return set(self.faults) | set(self.session_faults) | stale


def last_layer(job: Job) -> List[str]:
    """Return the names of the parameters of a workload's last layer, of which the last is its bias."""
    return [parameter["name"] for parameter in job["workload"]["layers"][-1]["parameters"]]


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


class Framework(NamedTuple):
    """How the processes of a launch start one framework."""

    open_session: Callable[[Job, ProcessContext], Session]
    """Start this worker's training; called in processes of the role ``worker``."""
    serve: Optional[Callable[[Job, ProcessContext], Optional[Dict[str, Any]]]] = None
    """Be a parameter server or the scheduler until all workers have left; None if no strategy needs either. What is
    returned goes into the process's record ``threads``: the number of a server's, where only the framework knows it."""
    open_back_end: Optional[Callable[[Job, ProcessContext], BackEnd]] = None
    """Start this worker's communication without training, for the message benchmark; None if the manifest names no
    ``[back_ends]``."""
    serve_back_end: Optional[Callable[[Job, ProcessContext], None]] = None
    """Be a server or the scheduler of the message benchmark; None if no back end needs either."""

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function ``name`` of the above; raises ValueError where the description leaves it out."""
        found: Optional[Callable[..., Any]] = getattr(self, name)
        if found is None:
            raise ValueError(
                "FRAMEWORK has no %s=, which this launch needs; add it to the framework's adapter.py, or take what "
                "needs it out of framework.toml" % name
            )
        return found


def require_own_device(local_rank: int, found: int, title: str) -> None:
    """Raise RuntimeError where there is no CUDA device for a worker: two on one would measure how they share it.

    Args:
        local_rank: of the worker on its host, from 0, which is the number of its device.
        found: how many devices the framework sees.
        title: the framework's, as in a sentence.
    """
    if local_rank >= found:
        raise RuntimeError(
            "worker %d of this host needs a GPU of its own, and %s sees %d; use fewer workers or device: cpu"
            % (local_rank, title, found)
        )


def require_fp32(job: Job, title: str, devices: Sequence[str] = ("cpu",)) -> None:
    """Raise ValueError for a job that wants another precision than fp32, or none of ``devices``, of ``title``."""
    if job["precision"] != "fp32" or job["device"] not in devices:
        known = " or ".join(devices)
        raise ValueError(
            "%s trains in fp32 on the %s, not in %s on %s; set precision to fp32 and device to %s"
            % (title, known, job["precision"], job["device"], known)
        )
