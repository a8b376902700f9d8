"""The floating-point operations of one step, counted by torch when asked (`STEPTIME_ATTACH_FLOPS`)."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import Recorder

STEP = 4


class FlopCount:
    """Counts inside each outermost forward and backward of one step, so that no mode of the user's is crossed."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.wanted = bool(os.environ.get("STEPTIME_ATTACH_FLOPS"))
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what was counted."""
        self.sums: dict[str, int] = {}
        self.operators: dict[str, int] = {}

    def enter(self, phase: str) -> Any:
        """Begin to count in ``phase`` if this is the step; return what ``leave`` needs."""
        if not self.wanted or self.recorder.number != STEP:
            return None
        mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        mode.__enter__()
        return phase, mode

    def leave(self, counting: Any) -> None:
        """End what ``enter`` began."""
        if counting is None:
            return
        phase, mode = counting
        mode.__exit__(None, None, None)
        self.sums[phase] = self.sums.get(phase, 0) + mode.get_total_flops()
        for operator, count in mode.get_flop_counts().get("Global", {}).items():
            self.operators[str(operator)] = self.operators.get(str(operator), 0) + count

    def step_closed(self, number: int) -> None:
        """Write the line once the step is over."""
        if not self.wanted or number <= STEP:
            return
        self.wanted = False
        self.recorder.file.write({"kind": "flops", "step": STEP, **self.sums, "operators": self.operators})
