"""The early end of a run of a sweep: once its step is known well enough, or after so many steps.

The ranks wait between two steps (``attach/early_end.py``). Only where all of them do and none has saved anything are
they told to end, by the signal that Slurm would send. The program of the command gets the same signal, so that it
starts nothing anew, unless a rank handles the signal itself: what that does then, nothing may cut short.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from math import ceil
from typing import Any

from steptime.attach.early_end import END, GO_ON, ORDER, WAITING
from steptime.attached.summary import attached_run
from steptime.plain_file import PlainFolder
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store
from steptime.runner.attached_run import PreparedCommand

LEAST_STEPS = 20
"""Fewer steps hold hardly any that are steady."""
NARROW = 0.01
"""Half the interval of a run's step over the step: runs differ by more."""
FIRST_LOOK_S = 10.0
"""After which the interval of a run is looked at first; then after twice, four times as long."""
_AHEAD_S, _AHEAD_STEPS = 2.0, 3
"""How far ahead lies the step before which ranks are to wait: all must have read it before they come to it."""
_MOST_WAITING_S = 15.0
"""A rank that waits longer may soon train on."""
SAVES = "it saves checkpoints, and a run that is ended early could leave one cut"
UNSEEN = "its ranks did not come to one step together"
_NO_PYTORCH = "only checkpoints of PyTorch are seen, and it trains with another framework"


class EarlyEnd:
    """What ends one run early; ``beat`` is called while it lasts."""

    def __init__(self, prepared: PreparedCommand, most_steps: int) -> None:
        self.prepared = prepared
        self.step = most_steps
        self.is_decided = self.ends_program = False
        self.whole_because: str | None = None
        """Why a run was not ended that came to the step."""
        self._order(f"{most_steps}")
        self._began_s = time.monotonic()
        self._look_at_s = FIRST_LOOK_S

    def beat(self, process: int) -> None:
        """End the run if it is time; ``process`` is that of the command."""
        waiting = self._waiting()
        if self.is_decided:
            if self.ends_program and not waiting:  # every rank has ended its record
                self.ends_program = False
                os.kill(process, signal.SIGTERM)
        elif waiting:
            self._decide(waiting)
        elif time.monotonic() - self._began_s >= self._look_at_s:
            self._look_at_s *= 2.0
            self._look()

    def reason(self) -> str | None:
        """Return why the run, which is over, was not ended though it had more steps; None if it was or had not."""
        if self.is_decided:
            return self.whole_because
        recorded = Store.open(self.prepared.folder).attached()
        processes = recorded[1].processes if recorded is not None else []
        if recorded is None or max((own.steps[-1].number for own in processes if own.steps), default=0) <= self.step:
            return None
        torch = any(len(words) > 1 and words[1] == "torch" for words in map(str.split, recorded[1].seen))
        return UNSEEN if torch else _NO_PYTORCH

    def _waiting(self) -> list[dict[str, Any]]:
        folder, now_s = PlainFolder(self.prepared.folder), time.time()
        paths = sorted(self.prepared.hook.glob(f"{WAITING}*.json"))
        return [json.loads(folder.read(path)) for path in paths if now_s - path.stat().st_mtime < _MOST_WAITING_S]

    def _decide(self, waiting: Sequence[dict[str, Any]]) -> None:
        if any(rank["saves"] for rank in waiting):
            self._settle(GO_ON, SAVES)
        elif self._is_complete(waiting):
            self.prepared.header["ended_early"] = waiting[0]["step"]
            self._settle(END, None)
            self.ends_program = not any(rank["handles_signal"] for rank in waiting)

    def _is_complete(self, waiting: Sequence[dict[str, Any]]) -> bool:
        """Return whether all processes that train wait, at the same step, each as another rank."""
        world, step = waiting[0]["world"], waiting[0]["step"]
        alike = all((rank["world"], rank["step"]) == (world, step) for rank in waiting)
        files = len(list((self.prepared.folder / RECORDS).glob("*.jsonl")))
        return alike and len({rank["rank"] for rank in waiting}) == len(waiting) == world == files

    def _settle(self, order: str, whole_because: str | None) -> None:
        self._order(order)
        self.is_decided, self.whole_because = True, whole_because

    def _order(self, text: str) -> None:
        PlainFolder(self.prepared.folder).write(self.prepared.hook / ORDER, f"{text}\n".encode())

    def _look(self) -> None:
        """Have ranks wait soon where the step of this run is known well."""
        recorded = Store.open(self.prepared.folder).attached()
        run = None if recorded is None else attached_run(*recorded)
        if recorded is None or run is None or run.step_s.value is None:
            return
        reached = max(process.steps[-1].number for process in recorded[1].processes if process.steps)
        soon = reached + max(_AHEAD_STEPS, ceil(_AHEAD_S / run.step_s.value))
        if reached >= LEAST_STEPS and soon < self.step and is_narrow(run.step_s.value, run.step_s.low, run.step_s.high):
            self.step = soon
            self._order(f"{soon}")


def is_narrow(value: float, low: float | None, high: float | None) -> bool:
    """Return whether more steps of the same run would tell little."""
    return low is not None and high is not None and high - low <= 2.0 * NARROW * value
