"""The lines of steps: each its own, until that would exceed the limit of a file; then most are summed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .record_file import RecordFile

SUMMED_NS = 1_000_000_000
# At most one step in so many keeps its line where steps are summed.
FEWEST = 1 << 20


class StepLines:
    """Writes a step's line, or adds it to the sums that are written at most once a second."""

    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self.every = 1  # steps whose number is a multiple of it keep their line
        self.sums: dict[str, Any] | None = None

    def add(self, line: dict[str, Any]) -> None:
        """Write ``line``, or sum it."""
        if line["number"] % self.every == 0:
            text = json.dumps(line, separators=(",", ":"))
            if self.file.affords(len(text)):
                self.flush()
                self.file.write_text(text)
                if self.every > 1 and self.file.affords(len(text) * 64):
                    self.every //= 2
                return
            self.every = min(FEWEST, self.every * 2)
        self._sum(line)

    def _sum(self, line: dict[str, Any]) -> None:
        if self.sums is None:
            self.sums = {
                "kind": "steps",
                "first": line["number"],
                "last": line["number"],
                "begin_ns": line["begin_ns"],
                "duration_ns": 0,
                "micro_steps": 0,
                "regions": {},
                "gaps": {},
                "apart_ns": 0,
            }
        sums = self.sums
        sums["last"] = line["number"]
        sums["duration_ns"] += line["duration_ns"]
        sums["micro_steps"] += line["micro_steps"]
        for table in ("regions", "gaps"):
            into = sums[table]
            for name, duration in line[table].items():
                into[name] = into.get(name, 0) + duration
        apart = line.get("apart")
        if apart:
            sums["apart_ns"] += apart["end_ns"] - apart["begin_ns"]
        if sums["duration_ns"] >= SUMMED_NS:
            text = json.dumps(sums, separators=(",", ":"))
            if self.file.affords(len(text)):
                self.file.write_text(text)
                self.sums = None

    def flush(self) -> None:
        """Write what is summed."""
        if self.sums is not None:
            self.file.write(self.sums)
            self.sums = None
