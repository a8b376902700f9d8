"""What a framework gives to the worker: one typed description, at the end of its ``adapter.py``.

Requirements, which every framework's description meets:

- ``steptime/frameworks/NAME/adapter.py`` ends in ``FRAMEWORK = Framework(open_session, …)``; nothing in the adapter is
  found by its name but this one;
- the module can be imported where the framework is not installed: each function imports the framework itself;
- the functions take the job (``job.json`` as a dictionary) and the ``ProcessContext`` of their process, and raise
  ValueError for a job that the framework cannot do, RuntimeError when processes do not find each other;
- no function measures time, writes records or ends the process: the worker does.
"""

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

from steptime.worker.back_end import BackEnd
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session


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
