"""The records of the other nodes of an attached job, where each node wrote to a folder of its own."""

import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from steptime.errors import StoreError
from steptime.plain_file import MOST_BYTES, PlainFolder
from steptime.results.attached_files import RECORDS, AttachedFiles, read_attached

STANDARD_INPUT = Path("-")
_MOST_FILES = 20_000
_MOST_TOTAL = 4 << 30
"""Bytes of the records in an archive."""
_NOT_RECORDS = (
    "{path} holds no records of 'steptime attach'{why}: name a results folder, a .jsonl file of it, or a tar of it"
)


def joined_files(first: AttachedFiles, others: Sequence[Path]) -> AttachedFiles:
    """Return the records of a results folder together with those of other nodes; a process is taken once.

    Args:
        first: of the results folder.
        others: results folders, their folders of records, ``.jsonl`` files, archives of tar, or ``-``: one from a pipe.

    Raises StoreError that names what holds no records.
    """
    parts = [first, *(each for path in others for each in _read(path))]
    found = (each for part in parts for each in part.processes)
    return AttachedFiles(
        list({(each.process.host, each.process.pid, each.process.begin_ns): each for each in found}.values()),
        [line for part in parts for line in part.seen],
        sorted((each for part in parts for each in part.failures), key=lambda each: each.at_ns),
        [each for part in parts for each in part.set_aside],
    )


def _read(path: Path) -> Iterator[AttachedFiles]:
    if path.is_dir():
        place = path / RECORDS if (path / RECORDS).is_dir() else path
        yield _required(read_attached(PlainFolder(path), place), path)
        return
    with TemporaryDirectory() as name:
        folder = PlainFolder(Path(name))
        if path.suffix == ".jsonl":
            folder.put(folder.path / path.name, PlainFolder(path.parent).read(path))
        else:
            _unpack(path, folder)
        yield _required(read_attached(folder, folder.path), path)


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
        raise StoreError(_NOT_RECORDS.format(path=path, why=f" ({error})")) from error


def _unpack_stream(stream: IO[bytes], folder: PlainFolder) -> None:
    total = 0
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for number, member in enumerate(archive):
            name = PurePosixPath(member.name).name
            if not member.isreg() or not name.endswith((".jsonl", ".txt")):
                continue
            total += member.size
            if number >= _MOST_FILES or member.size > MOST_BYTES or total > _MOST_TOTAL:
                message = f"{member.name} makes the archive larger than the records of any job"
                raise StoreError(message)
            file = archive.extractfile(member)
            if file is not None:
                kind, _, rest = name.rpartition(".")
                folder.put(folder.path / f"{kind}-{number}.{rest}", file.read())
