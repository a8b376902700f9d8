"""The results folder of an attached command: a new one, with a number behind its name where that is taken."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.attached.user_command import script_of
from steptime.errors import StoreError
from steptime.file_name import as_file_name
from steptime.foreign_writers import require_folder_for_launches
from steptime.plain_file import PlainFolder
from steptime.results.folder import RESULTS, ResultsFolder
from steptime.results.gpu_windows import RECORDS
from steptime.runner.job_member import JobMember

if TYPE_CHECKING:
    from steptime.results.attached_files import AttachedHeader

_MOST_SIBLINGS = 1000
_MAKING_S, _LOOK_S = 5.0, 0.1
"""For how long a folder may be made, and how often is looked whether it is."""
_OF_EVERY_RUN = {RECORDS, "attached.json", "machine.json", "run.lock", "study.json", "study.yaml"}
_MOST_WITHOUT_STEP = 1_000_000
"""Bytes of a record that is looked through for a step."""
_TEXT = "# Made by 'steptime attach': no study, but the run of a command.\n"
_QUESTION = "Where does the time of {command} go?"


def named_folder(words: Sequence[str], output: Path | None) -> Path:
    """Return the folder that a user named, else one after the script of the command."""
    if output is not None:
        return output
    script = Path(script_of(words)[1]).name.removesuffix(".py")
    return RESULTS / f"attach-{as_file_name(script, 'command')}"


def siblings(folder: Path) -> Iterator[Path]:
    """Yield ``folder`` and then the same name with numbers behind it: runs, runs-2, runs-3, ..."""
    yield folder
    for number in count(2):
        yield folder.with_name(f"{folder.absolute().name}-{number}")


def free_folder(folder: Path) -> Path:
    """Return the first of ``siblings`` that is not there or is empty.

    Raises StoreError where all are taken.
    """
    for place in islice(siblings(folder), _MOST_SIBLINGS):
        if not os.path.lexists(place) or (place.is_dir() and not any(place.iterdir())):
            return place
    message = f"{folder} and {_MOST_SIBLINGS - 1} folders with numbers after its name are taken; choose another with -o"
    raise StoreError(message)


def clear_failed(folder: Path) -> None:
    """Remove a results folder of a command that failed before its first step, so that the next run has its name.

    One that holds anything else stays, and so does one that cannot be read.
    """
    with suppress(StoreError, OSError):
        store = ResultsFolder.open(folder)
        with store.lock():
            header = store.get("attached")
            if isinstance(header, dict) and header.get("exit_code") and not _holds_more(folder):
                PlainFolder(folder.parent).remove(folder)


def _holds_more(folder: Path) -> bool:
    """Whether a results folder has a step, or a file that a command without one does not leave."""
    if {each.name for each in folder.iterdir()} - _OF_EVERY_RUN:
        return True
    for record in (folder / RECORDS).iterdir():
        if record.stat().st_size > _MOST_WITHOUT_STEP or b'"step"' in record.read_bytes():
            return True
    return False


def joined_folder(folder: Path, member: JobMember) -> Path | None:
    """Return the one of ``siblings`` in which another member of the same job has begun to write; None if none has."""
    for place in islice(siblings(folder), _MOST_SIBLINGS):
        if not os.path.lexists(place):
            return None
        header = _header(place)
        if (
            header is not None
            and member.belongs_to(header, datetime.now(UTC))
            and not member_file(place, member).exists()
        ):
            return place
    return None


def member_file(folder: Path, member: JobMember) -> Path:
    """Return where a member of a job notes what it knows of its command, in the results folder of the first one."""
    return folder / RECORDS / f"member-{as_file_name(member.member, 'member')}.json"


def _header(place: Path) -> "AttachedHeader | None":
    """Return what the first command of a results folder noted, for which one that is being made is waited for."""
    from steptime.results.attached_files import AttachedHeader  # noqa: PLC0415 - a command is begun without it

    until = time.monotonic() + _MAKING_S
    while True:
        try:
            value = ResultsFolder.open(place).get("attached")
            if value is not None:
                return AttachedHeader.model_validate(value)
            is_young = time.time() - place.stat().st_mtime < _MAKING_S
        except (StoreError, OSError, ValueError):
            is_young = place.is_dir() and any(place.iterdir()) and time.time() - place.stat().st_mtime < _MAKING_S
        if not is_young or time.monotonic() > until:
            return None
        time.sleep(_LOOK_S)


def make_results(folder: Path, command: str) -> ResultsFolder:
    """Make a results folder of the run of a command; raises StoreError where it cannot be made or used."""
    require_folder_for_launches(folder)
    study = {"name": folder.absolute().name, "question": _QUESTION.format(command=command)}
    return ResultsFolder.create(folder, study_text=_TEXT, study_json=study)
