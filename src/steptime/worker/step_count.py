"""The number of steps to time, on which all workers agree once, after the warm-up.

A synchronous strategy hangs when one worker steps more often than another, and no messaging exists that every
framework shares. The run folder is shared by all workers of a launch, so rank 0 writes the number there, and the
others wait for it. The pause falls between the warm-up and the timed steps, where nothing is measured.
"""

import json
import os
import time

_POLL_S = 0.005


def agree_on_step_count(context, warmup_ends, schedule):
    """Return the number of steps to time, the same on every worker.

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
        partial = path + ".partial"
        with open(partial, "w") as file:
            json.dump({"steps": steps}, file)
        os.rename(partial, path)
        return steps
    deadline = time.monotonic() + schedule.get("agree_timeout_s", 600.0)
    while time.monotonic() < deadline:
        if os.path.exists(path):
            with open(path) as file:
                return json.load(file)["steps"]
        time.sleep(_POLL_S)
    raise RuntimeError("worker 0 did not announce the number of steps in %s" % path)


def _steps(ends, schedule):
    gaps = sorted(later - earlier for earlier, later in zip(ends, ends[1:]))
    if not gaps or gaps[len(gaps) // 2] <= 0.0:
        return schedule["min_steps"]
    wanted = schedule["seconds"] / gaps[len(gaps) // 2]  # may be infinite, which no int can hold
    return max(schedule["min_steps"], int(min(schedule["max_steps"], wanted)))
