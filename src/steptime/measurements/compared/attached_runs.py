"""Runs of a user's own script as a side of a comparison: each run is a launch."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import join
from typing import Any

from steptime.errors import StoreError
from steptime.measurements.attached.attempts import attempts_of
from steptime.measurements.attached.process_files import AttachedFiles, AttachedHeader
from steptime.measurements.attached.step_parts import KeptSteps, kept_steps
from steptime.measurements.compared.sides import ComparedSide, Subject, facts_of_machine
from steptime.measurements.launch_times import reduce_times
from steptime.measurements.store import Store

_SCRIPT = "own script"


def attached_folders(folder: Path) -> list[Path]:
    """Return the results folders of attached runs at or directly below a folder; empty if there is none."""
    places = [folder, *(sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else [])]
    return [each for each in places if Store.exists(each) and Store.open(each).get("attached") is not None]


def attached_sides(
    runs: Sequence[Sequence[Store]], names: Sequence[str], sources: Sequence[str]
) -> tuple[ComparedSide, ComparedSide]:
    """Return the two sides that attached runs make.

    Where both have as many runs and these took turns, a run of each side is a block, in which what drifts hits both
    alike.

    Args:
        runs: of the baseline and of what is compared with it, each taken to be of one script on as many processes.
        names: of both sides.
        sources: the folders that hold them.

    Raises StoreError where no run of a side trained a step.
    """
    (one, earlier), (other, later) = (_side(*each) for each in zip(runs, names, sources, strict=True))
    if not _took_turns(earlier, later):
        return one, other
    one, other = (
        replace(side, source=" and ".join(sources), subjects=[replace(each, id=f"{each.id} of {side.name}")])
        for side in (one, other)
        for each in side.subjects
    )
    company = [*one.subjects, *other.subjects]
    return replace(one, company=company), replace(other, company=company)


def _took_turns(one: Sequence[AttachedHeader], other: Sequence[AttachedHeader]) -> bool:
    """Whether runs of two scripts make pairs of which each ended before the next began, on one machine."""
    pairs = list(zip(one, other, strict=False))
    order = [run for pair in pairs for run in sorted(pair, key=lambda each: each.begin_ns)]
    apart = all(run.end_ns is not None and run.end_ns <= later.begin_ns for run, later in pairwise(order))
    return len(one) == len(other) > 1 and len({run.boot for run in order}) == 1 and apart


def _side(stores: Sequence[Store], name: str, source: str) -> tuple[ComparedSide, list[AttachedHeader]]:
    read = [found for store in stores if (found := store.attached())]
    runs = [(header, steps) for header, files in sorted(read, key=_started) if (steps := _longest(files)) is not None]
    if not runs:
        message = f"{source}: no attached run trained a step that steptime knows"
        raise StoreError(message)
    latest, main = runs[-1]
    launches = reduce_times([steps.length_s.max(axis=0) for _, steps in runs])
    subject = Subject(
        id=_SCRIPT,
        identity={"workload": _SCRIPT, "processes": main.attempt.world},
        options={},
        launches=launches,
        software={"command": join(latest.command)},
        flags=list(dict.fromkeys(flag for header, _ in runs for flag in header.flags)),
    )
    hardware, system = facts_of_machine(stores[-1])
    headers = [header for header, _ in runs]
    started = [header.started_at for header in headers]
    return ComparedSide(name, source, [subject], [subject], hardware, system, started, checked=False), headers


def _started(found: tuple[AttachedHeader, Any]) -> str:
    return found[0].started_at


def _longest(files: AttachedFiles) -> KeptSteps | None:
    """Return the steps of the attempt that trained longest; None if none trained."""
    kept = [each for attempt in attempts_of(files.processes) if (each := kept_steps(attempt)).numbers]
    return max(kept, key=lambda each: float(each.length_s.max(axis=0).sum()), default=None)
