"""The loop of the timing run, the same for every framework: it measures whole steps and nothing else."""

import os
import time
from typing import Any, Dict, List

from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session
from steptime.worker.shared_file import RecordFile, await_file, read_json, write_json
from steptime.worker.usage import usage, used_since


def run_timed(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Warm up, agree on the number of steps, time them, and write the ends of all steps to ``records``.

    Nothing but the step and one clock tick runs inside the timed window.
    """
    clock = session.clock()
    schedule = job["schedule"]
    started = time.monotonic()
    for _ in range(schedule["warmup_steps"]):
        session.step()
        clock.tick()
    warmup_ends = clock.drain()
    records.write("warmup", started_s=started, ends_s=warmup_ends, loss=session.loss())
    steps = agree_on_step_count(context, warmup_ends, schedule)
    session.staleness()  # of the warm-up, which is not counted
    session.step()  # the workers come out of the pause at different moments; this step lines them up again
    before = usage()  # ahead of the first end, so that the usage covers all that is timed
    clock.tick()
    for _ in range(steps):
        session.step()
        clock.tick()
    session.wait()
    used = used_since(before)
    ends = clock.drain()
    stale = session.staleness()
    counts = None if stale is None else {str(updates): count for updates, count in sorted(stale.items())}
    records.write("steps", origin_s=ends[0], ends_s=ends[1:], loss=session.loss(), usage=used, staleness=counts)


def agree_on_step_count(context: ProcessContext, warmup_ends: List[float], schedule: Dict[str, Any]) -> int:
    """Return the number of steps to time, the same on every worker; called between the warm-up and the timed steps.

    A synchronous strategy hangs when one worker steps more often than another, and no messaging exists that every
    framework shares: rank 0 writes the number into the run folder, which all workers of a launch share.

    Args:
        context: of this worker.
        warmup_ends: the ends of this worker's warm-up steps, in seconds.
        schedule: the job's ``schedule``: ``seconds`` is the time aimed for, ``min_steps`` and ``max_steps`` bound
            the number of steps.

    Raises RuntimeError when rank 0's number does not arrive within ``schedule["agree_timeout_s"]``.
    """
    path = os.path.join(context.folder, "step_count.json")
    if context.rank == 0:
        steps = _steps(warmup_ends, schedule)
        write_json(path, {"steps": steps})
        return steps
    if not await_file(path, schedule.get("agree_timeout_s", 600.0)):
        raise RuntimeError("worker 0 did not announce the number of steps in %s" % path)
    announced: int = read_json(path)["steps"]
    return announced


def _steps(ends: List[float], schedule: Dict[str, Any]) -> int:
    gaps = sorted(later - earlier for earlier, later in zip(ends, ends[1:]))
    least: int = schedule["min_steps"]
    if not gaps or gaps[len(gaps) // 2] <= 0.0:
        return least
    wanted = schedule["seconds"] / gaps[len(gaps) // 2]  # may be infinite, which no int can hold
    return max(least, int(min(schedule["max_steps"], wanted)))
