"""Records of attached processes with a known truth, as the hook writes them."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from steptime.attached.form import AttachedRun
from steptime.attached.summary import attached_run
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store

MS = 1_000_000
BEGIN = 10_000 * MS
"""When the first step begins, on the monotonic clock of host 0."""
COMMAND = BEGIN - 3000 * MS
"""When the command began."""

Step = dict[str, Any]


def step(
    number: int, begin: int, regions: Mapping[str, float], gaps: Mapping[str, float] | None = None, **more: Any
) -> Step:
    """Return a step whose regions and gaps are given in milliseconds and add up to it, with what lies apart."""
    inside = {name: round(value * MS) for name, value in regions.items()}
    between = {name: round(value * MS) for name, value in (gaps or {}).items()}
    duration = sum(inside.values()) + sum(between.values())
    if "apart_ms" in more:
        apart = round(more.pop("apart_ms") * MS)
        end = begin + duration + apart
        more["apart"] = {"begin_ns": end - apart, "end_ns": end, "regions": {"nograd": apart}, "gaps": {}}
        duration += apart
    return {
        "kind": "step",
        "number": number,
        "begin_ns": begin,
        "duration_ns": duration,
        "micro_steps": 1,
        "regions": inside,
        "gaps": between,
        **more,
    }


def ddp_steps(
    rank: int, lateness: Callable[[int], list[float]], steps: int = 40, clock_ms: float = 0.0, **parts: float
) -> list[Step]:
    """Return the steps of a rank of a DDP job: input 20 ms, then forward, backward and an exchange that ends together.

    Args:
        rank: whose steps they are.
        lateness: of a step, by how many milliseconds the forward pass of each rank is longer than 5 ms.
        steps: how many.
        clock_ms: by how much the clock of this rank is ahead.
        parts: milliseconds of ``transfer`` and ``gap``.
    """
    found, begin = [], BEGIN
    transfer, gap = parts.get("transfer", 4.0), parts.get("gap", 0.0)
    for number in range(steps):
        late = lateness(number)
        wait = max(late) - late[rank]
        forward, compute = 5.0 + late[rank], 8.0
        backward = compute + wait + transfer
        at = begin + round((20.0 + forward + gap) * MS)
        last = at + round(compute * MS)
        end = at + round(backward * MS)
        shift = round(clock_ms * MS)
        regions = {"input": 20.0, "forward": forward, "backward": backward, "update": 3.0}
        passes = [[at + shift, last + shift, end + shift, True]]
        one = step(number, begin + shift, regions, {"forward>backward": gap} if gap else {}, backwards=passes)
        begin = one["begin_ns"] + one["duration_ns"] - shift
        found.append(one)
    return found


def process_lines(
    rank: int, world: int, steps: Iterable[Step], *, boot: str = "boot-0", attempt: int = 0, **more: Any
) -> list[dict[str, Any]]:
    """Return the lines of a process; ``more`` may have keys of its first line, ``ended`` and ``lines``."""
    steps = list(steps)
    first = {
        "kind": "process",
        "format": 1,
        "host": f"host-{boot}",
        "boot": boot,
        "pid": more.get("pid", 100 + rank + 1000 * attempt),
        "begin_ns": steps[0]["begin_ns"] - BEGIN + COMMAND,
        "clock": {"wall_ns": COMMAND, "monotonic_ns": COMMAND},
        "environment": more.get("environment", {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(attempt)}),
        "program": more.get("program", []),
        **({"parent": more["parent"]} if "parent" in more else {}),
    }
    by = more.get("by", "torch.distributed/gloo")
    place = [{"kind": "rank", "rank": rank, "world": world, "by": by}] if world > 1 else []
    last = steps[-1]
    at = last["begin_ns"] + last["duration_ns"]
    end = [{"kind": "end", "steps": len(steps), "at_ns": at, "lost": 0}] if more.get("ended", True) else []
    return [first, *place, *more.get("lines", []), *steps, *end]


def write(folder: Path, *processes: list[dict[str, Any]]) -> Path:
    """Write the files of processes into a results folder, and return the folder."""
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(processes):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / RECORDS / f"host-{number}.jsonl").write_text(text)
    return folder


def found_in(folder: Path, end_ms: float | None = None, **header: Any) -> AttachedRun:
    """Return what is found in the files of a folder, of a command that ended so many milliseconds after its begin."""
    about = AttachedHeader(
        command=["torchrun", "train.py"],
        started_at="2026-01-01T00:00:00+00:00",
        boot="boot-0",
        begin_ns=COMMAND,
        end_ns=None if end_ms is None else COMMAND + round(end_ms * MS),
        wall_minus_monotonic_ns=0,
        **{"exit_code": 0, **header},
    )
    return attached_run(about, read_attached(PlainFolder(folder), folder / RECORDS))


def ddp_job(folder: Path, lateness: Callable[[int], list[float]], world: int = 2, **more: Any) -> AttachedRun:
    """Write a DDP job of so many ranks and return what is found in it."""
    processes = [process_lines(rank, world, ddp_steps(rank, lateness, **more)) for rank in range(world)]
    return found_in(write(folder, *processes), 60_000.0)


def part_of(run: AttachedRun, name: str) -> Any:
    """Return a part of the step by its name."""
    return next(part for part in run.parts if part.name == name)


def sentences_of(run: AttachedRun) -> dict[str, str]:
    """Return the findings' sentences by kind."""
    return {finding.kind: finding.sentence for finding in run.findings}


def a_run(folder, number, late_ms, *, world=2, script="train.py", samples=8):  # noqa: PLR0913 - what a run is made of
    """Write a results folder of a script whose forward passes are as late; runs follow each other by number."""
    begin_ns = COMMAND + number * 10**10
    store = Store.create(folder, study_text="", study_json={"name": "own script"})
    store.put(
        "attached",
        {
            "command": [sys.executable, script],
            "started_at": f"2026-01-01T00:0{number}:00+00:00",
            "boot": "boot-0",
            "begin_ns": begin_ns,
            "end_ns": begin_ns + 10**10,
            "wall_minus_monotonic_ns": 0,
            "exit_code": 0,
        },
    )
    steps = [ddp_steps(rank, lambda _: [late_ms] * world) for rank in range(world)]
    steps = [[{**step, "samples": samples} for step in own] for own in steps]
    write(folder, *(process_lines(rank, world, own) for rank, own in enumerate(steps)))
