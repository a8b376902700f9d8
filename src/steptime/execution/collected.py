"""What the processes of a launch wrote into its run folder, and what their records become."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from steptime.results.ablation_records import WorkerAblation
from steptime.results.clock_marks import StoredMarks
from steptime.results.loader_records import LoaderStretch, WorkerLoading
from steptime.results.records import StepsAlone, TimedPause, WorkerSteps


@dataclass(frozen=True)
class Collected:
    """The records of every process, by its name (``worker-0``, …), each a mapping from kind to record."""

    records: dict[str, dict[str, dict[str, Any]]]

    def worker(self, rank: int) -> dict[str, dict[str, Any]]:
        """The records of one worker; empty when it wrote none."""
        return self.records.get(f"worker-{rank}", {})

    def epochs(self, rank: int) -> list[dict[str, Any]]:
        """The records of a worker's epochs, in their order."""
        found: list[dict[str, Any]] = self.worker(rank).get("epochs", {}).get("all", [])
        return found

    def missing(self, workers: int, kind: str) -> list[int]:
        """The ranks that have no record of ``kind``."""
        return [rank for rank in range(workers) if kind not in self.worker(rank)]

    def timed(self) -> tuple[float, float]:
        """The moments between which all workers were timed, on their monotonic clocks; no time if none was."""
        steps = [kinds["steps"] for kinds in self.records.values() if kinds.get("steps", {}).get("ends_s")]
        begin_s = max((each["origin_s"] for each in steps), default=0.0)
        ends = [each["ends_s"][-1] + ((each.get("pause") or {}).get("lasted_s") or 0.0) for each in steps]
        return begin_s, min(ends, default=0.0)

    def diverged(self) -> bool:
        """Whether the loss of a timed worker was no number."""
        timed = [kinds[kind] for kinds in self.records.values() for kind in ("warmup", "steps") if kind in kinds]
        return not all(math.isfinite(record["loss"]) for record in timed if record["loss"] is not None)

    def first_error(self, clock_offsets_s: Mapping[str, float] | None = None) -> str | None:
        """The error of the process that failed first, in one sentence.

        Peers of a dead worker fail too, with errors about the connection; the cause is the one that came first. Wall
        clocks decide, because monotonic clocks of several hosts do not compare.

        Args:
            clock_offsets_s: by the host's own name, how far its wall clock is ahead; a host that is not there is right.
        """
        offsets_s = clock_offsets_s or {}
        errors = [
            (
                record["error"].get("at_wall_s", record["error"]["at_s"])
                - offsets_s.get(record.get("process", {}).get("host", ""), 0.0),
                name,
                record["error"],
            )
            for name, record in self.records.items()
            if "error" in record
        ]
        if not errors:
            return None
        _, name, error = min(errors, key=lambda item: item[0])
        message = " ".join(error["message"].split())
        described = f"{name}: {error['error']}: {message}" if message else f"{name}: {error['error']}"
        return described + (_place(error.get("traceback", "")) if error["error"] in _OF_CODE else "")


_OF_CODE = {
    "AttributeError",
    "IndexError",
    "KeyError",
    "NameError",
    "NotImplementedError",
    "TypeError",
    "UnboundLocalError",
}
"""Errors of which the line of code is the best that can be told."""


_FRAME = re.compile(r'^ +File "([^"\n]+)", line (\d+), in (\S+)\n(?: +(\S[^\n]*))?', re.MULTILINE)


_INSTALLED = re.compile("site-packages|dist-packages|/lib/python3|^<")


def _place(traceback: str) -> str:
    """Return where an error was: in the last line that ran of what is not installed; empty where that is not known."""
    frames = [match.groups() for match in _FRAME.finditer(traceback)]
    own = [frame for frame in frames if not _INSTALLED.search(frame[0])] or frames
    if not own:
        return ""
    path, line, function, code = own[-1]
    return f" ({PurePath(path).name}:{line} in {function}{f': {code.strip()}' if code else ''})"


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
            if record["kind"] == "epoch":
                kinds.setdefault("epochs", {"all": []})["all"].append(record)
    return Collected(records)


def worker_steps(collected: Collected, workers: int) -> list[WorkerSteps]:
    """Return the timed steps of every worker; raises KeyError when a worker lacks a record."""
    return [_steps(rank, collected.worker(rank)) for rank in range(workers)]


def _steps(rank: int, records: dict[str, dict[str, Any]]) -> WorkerSteps:
    warmup, steps, session = records["warmup"], records["steps"], records["session"]
    together = steps.get("staleness") is None
    return WorkerSteps(
        rank=rank,
        host=records["process"]["host"],
        warmup_ends_s=warmup["ends_s"],
        origin_s=steps["origin_s"],
        ends_s=steps["ends_s"],
        loss_first=warmup["loss"],
        loss_last=steps["loss"],
        facts=_facts(records, steps),
        usage=steps["usage"],
        opened_in_s=session["opened_in_s"],
        staleness=steps.get("staleness"),
        losses=[tuple(each) for each in steps["losses"]],
        samples=steps["samples"],
        batches=[tuple(each) for each in steps["batches"]],
        drawn=steps["drawn"],
        weights=steps["weights"],
        first_update=next(iter(warmup["first_updates"]), None) if together else None,
        first_turns=[] if together else warmup["first_updates"],
        alone=_alone(steps),
        kernel_marks=_marks(steps),
        pause=_pause(steps["pause"]) if steps.get("pause") else None,
    )


def _alone(seen: dict[str, Any]) -> StepsAlone | None:
    return StepsAlone(**seen["alone"]) if seen.get("alone") else None


def _marks(seen: dict[str, Any]) -> StoredMarks | None:
    marks = seen.get("kernel_marks")
    return StoredMarks([tuple(mark) for mark in marks["marks"]], marks["settled_s"]) if marks else None


def _pause(seen: dict[str, Any]) -> TimedPause:
    return TimedPause(**{**seen, "alone": _alone(seen), "kernel_marks": _marks(seen)})


def _facts(records: dict[str, dict[str, Any]], seen: dict[str, Any]) -> dict[str, Any]:
    """What a session says, the cores and threads that its worker had at its end, and the cost of its clock's mark."""
    threads = {name: value for name, value in records.get("threads", {}).items() if name != "kind"}
    return {**records["session"]["facts"], **threads, "tick_s": seen.get("tick_s")}


def worker_ablations(collected: Collected, workers: int) -> list[WorkerAblation]:
    """Return the stage times of every worker; raises KeyError when a worker lacks a record."""
    return [_ablation(rank, collected.worker(rank)) for rank in range(workers)]


def _ablation(rank: int, records: dict[str, dict[str, Any]]) -> WorkerAblation:
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
        facts=_facts(records, seen),
        native=seen.get("native", []),
    )


def worker_loadings(collected: Collected, workers: int) -> list[WorkerLoading]:
    """Return the batches that every worker took; raises KeyError when a worker lacks a record."""
    return [_loading(rank, collected.worker(rank)) for rank in range(workers)]


def _loading(rank: int, records: dict[str, dict[str, Any]]) -> WorkerLoading:
    seen = records["loader"]
    return WorkerLoading(
        rank=rank,
        host=records["process"]["host"],
        stretches=[LoaderStretch(**stretch) for stretch in seen["stretches"]],
        batches_per_epoch=seen["batches_per_epoch"],
        batches_ahead=seen["batches_ahead"],
        facts=_facts(records, seen),
    )
