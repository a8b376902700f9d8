"""Runs of a user's own script as a side of a comparison: each run is a launch."""

from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import Any

from steptime.errors import StoreError
from steptime.measurements.attached.attempts import attempts_of
from steptime.measurements.attached.header import AttachedHeader
from steptime.measurements.attached.process_files import AttachedFiles
from steptime.measurements.attached.step_parts import KeptSteps, kept_steps
from steptime.measurements.compared.sides import ComparedSide, Subject, facts_of_machine
from steptime.measurements.launch_times import reduce_times
from steptime.measurements.store import Store

_SCRIPT = "own script"


def attached_folders(folder: Path) -> list[Path]:
    """Return the results folders of attached runs at or directly below a folder; empty if there is none."""
    places = [folder, *(sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else [])]
    return [each for each in places if Store.exists(each) and Store.open(each).get("attached") is not None]


def attached_side(stores: Sequence[Store], name: str, source: str) -> ComparedSide:
    """Return the side that attached runs make, oldest first.

    Args:
        stores: of the runs, which are taken to be of one script on as many processes.
        name: of the side.
        source: the folder that holds them.

    Raises StoreError where no run trained a step.
    """
    read = [found for store in stores if (found := store.attached())]
    runs = [(header, steps) for header, files in sorted(read, key=_started) if (steps := _longest(files)) is not None]
    if not runs:
        message = f"{source}: no attached run trained a step that steptime knows"
        raise StoreError(message)
    latest, main = runs[-1]
    launches = reduce_times([steps.length_s.max(axis=0) for _, steps in runs])
    subject = Subject(
        id=_SCRIPT,
        identity={"processes": main.attempt.world},
        options={},
        launches=launches,
        software={"command": join(latest.command)},
        flags=list(dict.fromkeys(flag for header, _ in runs for flag in header.flags)),
    )
    hardware, system = facts_of_machine(stores[-1])
    started = [header.started_at for header, _ in runs]
    return ComparedSide(name, source, [subject], [subject], hardware, system, started, checked=False)


def _started(found: tuple[AttachedHeader, Any]) -> str:
    return found[0].started_at


def _longest(files: AttachedFiles) -> KeptSteps | None:
    """Return the steps of the attempt that trained longest; None if none trained."""
    kept = [each for attempt in attempts_of(files.processes) if (each := kept_steps(attempt)).numbers]
    return max(kept, key=lambda each: float(each.length_s.max(axis=0).sum()), default=None)
