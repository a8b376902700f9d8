"""``with steptime.attached():``: a part of a script or notebook that is recorded as an attached command is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import folder as hooks
from . import imports, process

VARIABLE, SEARCHED = "STEPTIME_ATTACH", "PYTHONPATH"
DEFAULT = os.path.join("steptime-results", "attached-block")
# Variables with the rank of this process and the number of all, as launchers name them.
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
MARK = "block-"
# The processes of a job come to the same block within this time.
TOGETHER_S = 900.0
MOST_SIBLINGS = 1000


class AttachedBlock:
    """A block whose steps are recorded in a folder of its own; the processes of a job share one.

    Whatever fails here, the block runs as without it, and one line names the cause.
    """

    def __init__(self, folder: str) -> None:
        self.wanted = folder
        # None while nothing is recorded: outside of the block, and below `steptime attach`, which records it all.
        self.folder: str | None = None
        # By which processes that the block starts are recorded too: who made it, where it lies, and what was searched.
        self.hook: tuple[int, str, str | None] | None = None

    def __enter__(self) -> AttachedBlock:  # noqa: PYI034 - Self is of Python 3.11
        """Begin to record."""
        with _unharmed("not measured"):
            if not os.environ.get(VARIABLE):
                folder = claimed_folder(self.wanted)
                os.environ[VARIABLE] = folder
                self.folder = folder
                process.begin_block(folder)
                imports.install("block")
                _adopt_data_parallel()
        if self.folder is not None:
            with _unharmed("processes that the block starts are not measured"):
                self._put_hook()
        return self

    def _put_hook(self) -> None:
        before = os.environ.get(SEARCHED)
        self.hook = os.getpid(), tempfile.mkdtemp(prefix="steptime-hook-"), before
        hooks.write_hook(Path(self.hook[1]))
        os.environ[SEARCHED] = os.pathsep.join(filter(None, (self.hook[1], before)))

    def _remove_hook(self) -> None:
        """Leave what is searched as it was, but for what the block itself has put there."""
        if self.hook is None:
            return
        pid, place, before = self.hook
        self.hook = None
        left = [each for each in os.environ.get(SEARCHED, "").split(os.pathsep) if each != place]
        if before is None and not any(left):
            os.environ.pop(SEARCHED, None)
        else:
            os.environ[SEARCHED] = os.pathsep.join(left)
        if pid == os.getpid():
            shutil.rmtree(place, ignore_errors=True)

    def __exit__(self, *raised: object) -> None:
        """End it, and name the command that reports it; what the block raised goes on."""
        if self.folder is None:
            return
        with _unharmed("the end is not on record"):
            os.environ.pop(VARIABLE, None)
            self._remove_hook()
            steps, others = process.end_block(), _children_in(self.folder)
            last = f"steptime report {self.folder}" if steps or others else "no step was seen"
            beside = f", and those of {others} child process{'es' if others > 1 else ''}" if others else ""
            if _first_of(RANKS, "0") == "0":
                sys.stderr.write(f"steptime: {steps} steps recorded{beside}: {last}\n")
        self.folder = None


def attached(folder: str | Path = DEFAULT) -> AttachedBlock:
    """Return a block whose steps are recorded in ``folder``, or in one with a number behind its name if that is taken.

    Below ``steptime attach``, and inside of another block, it does nothing.
    """
    return AttachedBlock(os.fspath(folder))


@contextlib.contextmanager
def _unharmed(what: str) -> Any:
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception):  # there may be no standard error, or no reader of it
            sys.stderr.write(f"steptime: {what}: {error!r}\n")


def claimed_folder(wanted: str) -> str:
    """Make and return the first of ``wanted``, ``wanted-2``, … that no other run has taken.

    Each process of a job leaves a mark with its rank and their number, and takes no folder that has marks of its own
    rank, of another number or of long ago.
    """
    own = f"{MARK}{_first_of(RANKS, '0')}-of-{_first_of(WORLDS, '1')}"
    for number in range(1, MOST_SIBLINGS):
        folder = os.path.abspath(wanted if number == 1 else f"{wanted}-{number}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if all(_is_of_job(folder, name, own) for name in os.listdir(folder)):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(os.path.join(folder, own), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return folder
    message = f"{wanted} and {MOST_SIBLINGS - 1} folders with numbers after its name are taken"
    raise FileExistsError(message)


def _children_in(folder: str) -> int:
    """Return how many processes that this one has started have a record, by the first lines of files."""
    count = 0
    for name in os.listdir(folder):
        if name.endswith(".jsonl"):
            with contextlib.suppress(ValueError, OSError), open(os.path.join(folder, name)) as file:
                count += json.loads(file.readline()).get("parent") == os.getpid()
    return count


def _first_of(names: tuple[str, ...], otherwise: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), otherwise)


def _is_of_job(folder: str, name: str, own: str) -> bool:
    if not name.startswith(MARK):
        return name.endswith(".jsonl") or name.startswith(("seen-", "failed-"))
    same = name != own and name.rpartition("-")[2] == own.rpartition("-")[2]
    return same and time.time() - os.stat(os.path.join(folder, name)).st_mtime < TOGETHER_S


def _adopt_data_parallel() -> None:
    """Know the DDP modules that the process has made already."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is not None:
        from .pytorch import collectives  # it would import nothing else, but few blocks need it

        collectives.adopt(module)
