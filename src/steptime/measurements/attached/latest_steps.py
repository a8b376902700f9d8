"""How far an attached run is, in a line, while it runs."""

from pathlib import Path

import numpy as np

from steptime.measurements.attached.attempts import attempts_of
from steptime.measurements.attached.exchange import split_exchange
from steptime.measurements.attached.process_files import RECORDS, read_latest
from steptime.plain_file import PlainFolder
from steptime.units import format_seconds

_STEPS = 20


def latest_steps(folder: Path) -> str | None:
    """Return the latest step, the mean of the last ones and the share of waiting; None without any yet.

    Raises StoreError where the folder holds a link, a pipe or a device.
    """
    attempts = attempts_of(read_latest(PlainFolder(folder), folder / RECORDS))
    if not attempts or not attempts[-1].steps:
        return None
    attempt = attempts[-1]
    numbers = [number for number in attempt.steps if not any(step.holds_other_work for step in attempt.steps[number])]
    numbers = numbers[-_STEPS:]
    if not numbers:
        return None
    length_s = float(np.mean([step.active_s for number in numbers for step in attempt.steps[number]]))
    said = f"step {numbers[-1]}, {format_seconds(length_s)}"
    found = split_exchange(attempt, numbers) if len(attempt.ranks) > 1 else ""
    if isinstance(found, str) or length_s <= 0.0:
        return said
    return f"{said}, {100 * float(found.waiting_s.mean()) / length_s:.0f} % of it waiting"
