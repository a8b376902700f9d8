"""What a framework gives to its tests: one typed description, at the end of the ``contract.py`` in its folder.

The contract suite, ``steptime check`` and the programs of ``benchmarks/equivalence`` read it; no training does.

Requirements, which every description meets:

- the module can be imported where the framework is not installed: each function imports the framework itself;
- the functions run in the framework's environment, in a process of their own, and may change the framework there;
- a fault is planted in what the framework itself computes or exchanges, never in what the check reads from it.
"""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session

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
