"""Read what the processes of a launch wrote into their run folder."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.measurements.ablation.records import WorkerAblation
from steptime.measurements.records import WorkerSteps

_TAIL_LINES = 40


@dataclass(frozen=True)
class Collected:
    """The records of every process, by its name (``worker-0``, …), each a mapping from kind to record."""

    records: dict[str, dict[str, dict[str, Any]]]

    def worker(self, rank: int) -> dict[str, dict[str, Any]]:
        """The records of one worker; empty when it wrote none."""
        return self.records.get(f"worker-{rank}", {})

    def missing(self, workers: int, kind: str) -> list[int]:
        """The ranks that have no record of ``kind``."""
        return [rank for rank in range(workers) if kind not in self.worker(rank)]

    def diverged(self) -> bool:
        """Whether a worker's loss was no number when it was timed."""
        timed = [kinds[kind] for kinds in self.records.values() for kind in ("warmup", "steps") if kind in kinds]
        return not all(math.isfinite(record["loss"]) for record in timed if record["loss"] is not None)

    def first_error(self) -> str | None:
        """What the first failing process said, in one sentence.

        Peers of a dead worker fail too, with errors about the connection; the cause is the one that came first.
        """
        errors = [
            (record["error"]["at_s"], name, record["error"])
            for name, record in self.records.items()
            if "error" in record
        ]
        if not errors:
            return None
        _, name, error = min(errors, key=lambda item: item[0])
        message = " ".join(error["message"].split())
        return f"{name}: {error['error']}: {message}" if message else f"{name}: {error['error']}"


def collect(folder: Path) -> Collected:
    """Read all record files of a run folder; a half-written last line is ignored."""
    records: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        kinds = records.setdefault(path.stem, {})
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            kinds[record["kind"]] = record
    return Collected(records)


def worker_steps(collected: Collected, workers: int) -> list[WorkerSteps]:
    """Return the timed steps of every worker; raises KeyError when a worker lacks a record."""
    return [_steps(rank, collected.worker(rank)) for rank in range(workers)]


def _steps(rank: int, records: dict[str, dict[str, Any]]) -> WorkerSteps:
    warmup, steps, session = records["warmup"], records["steps"], records["session"]
    return WorkerSteps(
        rank=rank,
        host=records["process"]["host"],
        warmup_ends_s=warmup["ends_s"],
        origin_s=steps["origin_s"],
        ends_s=steps["ends_s"],
        loss_first=warmup["loss"],
        loss_last=steps["loss"],
        facts=session["facts"],
        usage=steps["usage"],
        opened_in_s=session["opened_in_s"],
        staleness=steps.get("staleness"),
    )


def worker_ablations(collected: Collected, workers: int) -> list[WorkerAblation]:
    """Return what every worker saw of its steps; raises KeyError when a worker lacks a record."""
    return [_breakdown(rank, collected.worker(rank)) for rank in range(workers)]


def _breakdown(rank: int, records: dict[str, dict[str, Any]]) -> WorkerAblation:
    seen = records["ablation"]
    return WorkerAblation(
        rank=rank,
        host=records["process"]["host"],
        stages=seen["stages"],
        order=seen["order"],
        clocks=seen["clocks"],
        marks=seen["marks"],
        marked=seen["marked"],
        transfers=[tuple(piece) for piece in seen["transfers"]],
        facts=records["session"]["facts"],
        native=seen.get("native", []),
    )


def stderr_tails(folder: Path) -> dict[str, str]:
    """Return the last lines of every process's standard error, and of what was said before it had its own file."""
    tails = {}
    for path in sorted([*folder.glob("*.err"), *folder.glob("*.launch")]):
        lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        if lines:
            tails[path.name] = "\n".join(lines)
    return tails
