"""The loader alone: batches are taken from it as in training, and nothing is done with them.

The first epoch and the later ones are timed apart, since the files of the first may come from the disk and those of
the later ones come from the system's page cache.
"""

import time
from typing import Any, Callable, Dict, Optional

from steptime.worker.clock import StepClock
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.rendezvous import Rendezvous
from steptime.worker.session import Session
from steptime.worker.shared_file import RecordFile
from steptime.worker.usage import usage, used_since

FIRST, LATER = "first", "later"
"""The two stretches: within the first epoch, and in epochs behind it."""


def run_loader(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Take batches of the first epoch, then of later ones, and write their ends and their cost to ``records``.

    A stretch lasts ``schedule["seconds"]`` at most; where the first epoch takes longer, no later one is timed. In each
    stretch, the batches that may have been ready before it began are taken first and not counted.

    Raises RuntimeError where the framework cannot take a batch without training on it.
    """
    ablated = session.ablate()
    take = ablated.stages().get("input") if ablated is not None else None
    if take is None:
        raise RuntimeError(
            "%s cannot take a batch without training on it under the strategy %r, so that its loader cannot be timed "
            "alone" % (job["framework"], job["strategy"])
        )
    from steptime.worker.samples import steps_per_epoch  # it needs numpy, which a timed launch may lack

    schedule, loader = job["schedule"], job["loader"]
    ready = 1 + session.batches_ahead()
    epoch = steps_per_epoch(loader["dataset"]["samples"], context.workers, job["batch_per_worker"])
    # The session may have taken a batch of the epoch already.
    counted = max(1, epoch - ready - 1)
    stretches = []
    with Rendezvous(context) as rendezvous:
        rendezvous.barrier()
        stretches.append(_stretch(FIRST, take, session.clock(), ready, counted, schedule["seconds"]))
        # All or none: a worker that is behind the others would be alone in the second stretch.
        if rendezvous.from_first(len(stretches[0]["ends_s"]) == counted):
            rendezvous.barrier()
            stretches.append(_stretch(LATER, take, session.clock(), ready, None, schedule["seconds"]))
        rendezvous.barrier()  # no worker ends its helpers while others are timed
    records.write("loader", stretches=stretches, batches_per_epoch=epoch, batches_ahead=session.batches_ahead())


def _stretch(  # noqa: PLR0913, PLR0917 - one per fact
    name: str, take: Callable[[], Any], clock: StepClock, uncounted: int, most: Optional[int], seconds: float
) -> Dict[str, Any]:
    """Return the ends and the usage of ``most`` batches, or of those that ``seconds`` suffice for, one at least."""
    for _ in range(uncounted):
        take()
    clock.drain()
    before = usage()
    clock.tick()
    deadline = time.monotonic() + seconds
    batches = 0
    while most is None or batches < most:
        take()
        clock.tick()
        batches += 1
        if time.monotonic() >= deadline:
            break
    ends = clock.drain()
    return {"name": name, "origin_s": ends[0], "ends_s": ends[1:], "usage": used_since(before)}
