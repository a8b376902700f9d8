"""The records of the nodes of an attached job, where each node wrote to a folder of its own."""

import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from steptime.errors import StoreError, UsageError
from steptime.plain_file import MOST_BYTES, PlainFolder, temporary_folder
from steptime.results.attached_files import AttachedFiles, AttachedHeader, read_attached
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store
from steptime.synonyms import path_hint
from steptime.user_output import kind_of

HEADER = "attached.json"
Recorded = tuple[AttachedHeader, AttachedFiles]
STANDARD_INPUT = Path("-")
_MOST_FILES = 20_000
_MOST_TOTAL = 4 << 30
"""Bytes of the records in an archive."""
_NOT_RECORDS = (
    "{path} holds no records of 'steptime attach'{why}: name a results folder, a .jsonl file of it, or a tar of it"
)


@contextmanager
def reported_folder(paths: Sequence[Path]) -> Iterator[tuple[Path, Recorded | None]]:
    """Yield the results folder that a report is of, and the records of several nodes, or None: it holds all itself.

    Args:
        paths: a results folder, or of an attached job in any order results folders, their folders of records,
            ``.jsonl`` files, archives of tar, or ``-``: one from a pipe. Where none of them is a results folder, an
            empty one exists until the end of the context.

    Raises StoreError that names what holds no records, and UsageError for a study among several.
    """
    missing = next((path for path in paths if path != STANDARD_INPUT and not path.exists()), None)
    mistaken = missing or next((path for path in paths if path != STANDARD_INPUT and kind_of(path)), None)
    if mistaken is not None:
        Store.open(mistaken)  # raises the error that names what may be meant
    base = next((path for path in paths if path != STANDARD_INPUT and Store.exists(path)), None)
    if base is None and _holds_records(paths[0]):
        parts = [part for path in paths for part in _read(path)]
        files = joined_files([files for _, files in parts])
        header = next((header for header, _ in parts if header is not None), None)
        with temporary_folder("joined") as own:
            folder = own / "records"
            Store.create(folder, study_text="", study_json={"name": paths[0].name or "records"})
            yield folder, (header or _header_of(files), files)
    elif base is None or len(paths) == 1:
        yield paths[0], None
    else:
        yield base, _joined(base, [path for path in paths if path != base])


def are_of_machines(paths: Sequence[Path]) -> bool:
    """Whether several results folders are runs of their own, and not what nodes of one attached job wrote.

    Studies are; attached runs where each holds all ranks of its job, and no process is in two.

    Raises UsageError where some hold studies and others attached runs.
    """
    if len(paths) == 1 or not all(path != STANDARD_INPUT and Store.exists(path) for path in paths):
        return False
    recorded = {path: Store.open(path).attached() for path in paths}
    studies = [path for path, own in recorded.items() if own is None]
    runs = [own for own in recorded.values() if own is not None]
    if studies and runs:
        attached = next(path for path, own in recorded.items() if own is not None)
        message = f"{studies[0]} holds a study and {attached} a run of 'steptime attach'; name folders of one kind"
        raise UsageError(message)
    if not runs:
        return len(recorded) > 1
    return len(recorded) == len(paths) and _are_apart(runs)


def _are_apart(runs: Sequence[Recorded]) -> bool:
    """Whether each run holds all ranks of its job, and no process is in two."""
    processes = [
        (process.process.host, process.process.pid, process.process.begin_ns)
        for _, files in runs
        for process in files.processes
    ]
    whole = all(header.imported or _is_whole(files) for header, files in runs)
    return whole and len(processes) == len(set(processes))


def _is_whole(files: AttachedFiles) -> bool:
    """Whether records are of every rank of their job."""
    places = {(lines.place.world, lines.place.rank) for lines in files.processes if lines.place}
    lacking = any((world, rank) not in places for world, _ in places for rank in range(min(world, len(places) + 1)))
    return bool(files.processes) and not lacking


def _holds_records(path: Path) -> bool:
    return path == STANDARD_INPUT or path.is_file() or any(path.glob("*.jsonl"))


def _joined(base: Path, others: Sequence[Path]) -> Recorded:
    """Return the records of a results folder with those of other nodes."""
    recorded = Store.open(base).attached()
    if recorded is None:
        message = f"{base} holds a study, and folders are joined where 'steptime attach' made them; name one alone"
        raise UsageError(message)
    header, own = recorded
    return header, joined_files([own, *(files for path in others for _, files in _read(path))])


def joined_files(parts: Sequence[AttachedFiles]) -> AttachedFiles:
    """Return the records of several nodes together; a process is taken once."""
    processes = (each for part in parts for each in part.processes)
    return AttachedFiles(
        list({(each.process.host, each.process.pid, each.process.begin_ns): each for each in processes}.values()),
        [line for part in parts for line in part.seen],
        sorted((each for part in parts for each in part.failures), key=lambda each: each.at_ns),
        [each for part in parts for each in part.set_aside],
        gpus=list({repr(each): each for part in parts for each in part.gpus}.values()),
    )


def _header_of(files: AttachedFiles) -> AttachedHeader:
    """Return what the first process shows of its command, which is not on record."""
    first = min((each.process for each in files.processes), key=lambda process: process.begin_ns)
    ahead = first.clock.wall_ns - first.clock.monotonic_ns
    return AttachedHeader(
        command=first.program or ["script"],
        started_at=datetime.fromtimestamp((first.begin_ns + ahead) * 1e-9, UTC).isoformat(timespec="milliseconds"),
        boot=first.boot or first.host,
        begin_ns=first.begin_ns,
        wall_minus_monotonic_ns=ahead,
        by_environment=True,
    )


def _read(path: Path) -> Iterator[tuple[AttachedHeader | None, AttachedFiles]]:
    if path.is_dir():
        place = path / RECORDS if (path / RECORDS).is_dir() else path
        yield None, _required(read_attached(PlainFolder(path), place), path)
        return
    with temporary_folder("read") as own:
        folder = PlainFolder(own)
        if path.suffix == ".jsonl":
            folder.put(folder.path / path.name, PlainFolder(path.parent).read(path))
        else:
            _unpack(path, folder)
        header = folder.path / HEADER
        known = _header_in(folder.read(header)) if header.exists() else None
        yield known, _required(read_attached(folder, folder.path), path)


def _header_in(text: bytes) -> AttachedHeader | None:
    """Return what is on record of a command; None if it cannot be read, since the steps matter more."""
    try:
        return AttachedHeader.model_validate(json.loads(text))
    except ValueError:
        return None


def _required(files: AttachedFiles, path: Path) -> AttachedFiles:
    if not files.processes:
        raise StoreError(_NOT_RECORDS.format(path=path, why=""))
    return files


def _unpack(path: Path, folder: PlainFolder) -> None:
    """Write the records in an archive into a folder, each under a name of its own; nothing else in it is looked at."""
    try:
        if path == STANDARD_INPUT:
            _unpack_stream(sys.stdin.buffer, folder)
        else:
            with path.open("rb") as file:
                _unpack_stream(file, folder)
    except (OSError, tarfile.TarError, EOFError) as error:
        meant = "" if path.exists() else path_hint(path)
        why = f" ({error}{meant and f'; {meant}'})"
        raise StoreError(_NOT_RECORDS.format(path=path, why=why)) from error


def _unpack_stream(stream: IO[bytes], folder: PlainFolder) -> None:
    total = 0
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for number, member in enumerate(archive):
            name = PurePosixPath(member.name).name
            if not member.isreg() or not (name == HEADER or name.endswith((".jsonl", ".txt"))):
                continue
            total += member.size
            if number >= _MOST_FILES or member.size > MOST_BYTES or total > _MOST_TOTAL:
                message = f"{member.name} makes the archive larger than the records of any job"
                raise StoreError(message)
            file = archive.extractfile(member)
            if file is not None:
                kind, _, rest = name.rpartition(".")
                kept = name if name == HEADER else f"{kind}-{number}.{rest}"
                folder.put(folder.path / kept, file.read())
