"""What the latest steps of an attached run show while it runs, from the ends of its files."""

from pathlib import Path

import numpy as np

from steptime.attached.attempts import Attempt, attempts_of
from steptime.attached.exchange import split_exchange
from steptime.attached.step_parts import KeptSteps, step_parts, title_of
from steptime.attached.straggler import whom_ranks_wait_for
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import read_latest
from steptime.results.gpu_windows import RECORDS
from steptime.units import format_seconds

_STEPS = 20


def latest_attempt(folder: Path) -> Attempt | None:
    """Return the ends of the files of the latest attempt; None before its first step.

    Raises StoreError where the folder holds a link, a pipe or a device.
    """
    attempts = attempts_of(read_latest(PlainFolder(folder), folder / RECORDS))
    return attempts[-1] if attempts and attempts[-1].steps else None


def latest_steps(attempt: Attempt | None) -> str | None:
    """Return the latest step, the mean of the last ones, the share of waiting and for whom; None without any yet."""
    if attempt is None:
        return None
    numbers = [number for number in attempt.steps if not any(step.holds_other_work for step in attempt.steps[number])]
    numbers = numbers[-_STEPS:]
    if not numbers:
        return None
    length_s = float(np.mean([step.active_s for number in numbers for step in attempt.steps[number]]))
    text = f"step {numbers[-1]}, {format_seconds(length_s)}"
    if len(attempt.ranks) < 2 or length_s <= 0.0:  # noqa: PLR2004 - of one alone
        return text
    exchange = split_exchange(attempt, numbers)
    if isinstance(exchange, str):
        return f"{text}; which rank is slowest is not known: {exchange}"
    kept = KeptSteps(attempt, exchange.numbers, exchange, None)
    waited = whom_ranks_wait_for(kept, step_parts(kept))
    waiting = f"{100 * float(exchange.waiting_s.mean()) / length_s:.0f} % of it waiting"
    if waited is None or not waited.ranks:
        return f"{text}, {waiting}; no rank is shown to be slowest"
    longer = "" if waited.part is None else f", longer in {title_of(waited.part)}"
    return (
        f"{text}, {waiting}; slowest now: {waited.title}, {format_seconds(waited.others_wait_s.value)} a step{longer}"
    )
