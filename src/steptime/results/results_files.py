"""Reading the records of a results folder: what does not belong is set aside, what is newer refused."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from steptime.errors import StoreError
from steptime.results.consistency import AnyRecord, FileCheck, Misfit, SetAside
from steptime.results.jsonlines import parse_line, schema_of_signed, whole_lines
from steptime.results.object_files import ObjectFiles
from steptime.results.stored_record import SCHEMA, Reader, Record, first_mistake
from steptime.study.trial import Trial
from steptime.user_output import PROFILE

_SIGNED = 2
"""The schema from which on lines have a checksum."""
_SIGNED_SCHEMAS = range(1, SCHEMA + 1)


class ResultsFiles(ObjectFiles):
    """The files of one results folder, as far as they are read.

    Lines of records that are damaged, or are no launch of their trial, are set aside. Whatever else is damaged, or has
    a newer schema, raises StoreError.
    """

    def __init__(self, path: Path) -> None:
        """Read from the folder ``path``."""
        super().__init__(path)
        self._set_aside: dict[str, dict[int, SetAside]] = {}
        self._unverified: dict[str, int] = {}
        self._launch_files: dict[str, bool] = {}
        """Whether a file of launches has one that is used."""

    @property
    def set_aside(self) -> list[SetAside]:
        """The lines that were read and are not used."""
        return [each for lines in self._set_aside.values() for each in lines.values()]

    def set_aside_below(self, folder: Path) -> list[SetAside]:
        """Return those of them that lie directly in a folder."""
        files = [file for file in self._set_aside if (self.path / file).parent == folder]
        return [each for file in files for each in self._set_aside[file].values()]

    def unverified_below(self, folder: Path) -> int:
        """Return how many lines were read without a checksum that lie directly in a folder."""
        return sum(count for file, count in self._unverified.items() if (self.path / file).parent == folder)

    @property
    def nothing_is_left(self) -> bool:
        """Whether there were launches, and all were set aside."""
        return bool(self._set_aside.keys() & self._launch_files) and not any(self._launch_files.values())

    def launches(self, path: Path, parse: Reader[AnyRecord], check: FileCheck[AnyRecord]) -> Iterator[AnyRecord]:
        """Yield the records of a file that pass ``check``."""
        file = str(path.relative_to(self.path))
        self._launch_files.setdefault(file, False)
        for record in self.records(path, parse, check.misfit):
            self._launch_files[file] = True
            yield record

    def records(
        self, path: Path, parse: Reader[Record], check: Callable[[Record, int], Misfit | None] = lambda *_: None
    ) -> Iterator[Record]:
        """Yield the records of a file of JSON lines; lines that are damaged or fail ``check`` are set aside."""
        file = str(path.relative_to(self.path))
        self._unverified[file] = 0
        for number, raw in enumerate(whole_lines(self._folder, path), 1):
            found: Misfit | None
            try:
                record = self._record(number, raw, path, parse)
            except ValueError as error:
                found = Misfit("damaged", str(error))
            else:
                found = check(record, number)
                if found is None:
                    yield record
                    continue
            aside = SetAside(file=file, line=number, reason=found.reason, message=found.message)
            self._set_aside.setdefault(file, {})[number] = aside

    def _record(self, number: int, raw: bytes, path: Path, parse: Reader[Record]) -> Record:
        """Return the record of a line; raises ValueError with what is damaged.

        A line as steptime writes it is parsed once, by the reader of its record; any other one is first taken as an
        object, which shows what is wrong.
        """
        if schema_of_signed(raw) in _SIGNED_SCHEMAS:
            with contextlib.suppress(ValueError):
                return parse(raw)
        line = parse_line(number, raw)
        if line.value is None:
            raise ValueError(line.problem)
        schema = self.check_schema(line.value, path)
        if not line.verified:
            _refuse_unsigned(schema)
            self._unverified[str(path.relative_to(self.path))] += 1
        return parse(raw)

    def trial(self, path: Path) -> Trial:
        """Return the configuration that a file describes."""
        try:
            # As JSON, because what JSON cannot tell apart (a list, a tuple) is strict otherwise.
            trial = Trial.model_validate_json(self._folder.read(path))
        except ValidationError as error:
            message = f"{path} is damaged ({first_mistake(error)}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error
        if trial.id != path.parent.name:
            message = f"{path} describes {trial.id}, not the trial of its folder; it was changed by hand or by accident"
            raise StoreError(message)
        return trial


def default_profile_path(folder: Path) -> Path:
    """Return the path of the profile of a results folder, where a command names no other."""
    whole = folder.resolve()
    return whole.with_name(whole.name + PROFILE.ending)


def folder_from(profile: Path, results: Path) -> str:
    """Return the path of a results folder from the folder of a profile, so that both can be moved together."""
    return os.path.relpath(results.resolve(), profile.resolve().parent)


def results_of(profile: Path, folder: str | None) -> Path | None:
    """Return the results folder of a profile, from here; None if it is not there.

    Args:
        profile: its path.
        folder: what the profile has of it; by default the name of a profile that is beside its folder.
    """
    name = profile.name.removesuffix(PROFILE.ending)
    results = profile.parent / (folder or name)
    if not (folder or name != profile.name) or not results.is_dir():
        return None
    return Path(os.path.relpath(results))


def _refuse_unsigned(schema: int) -> None:
    if schema >= _SIGNED:
        problem = "its checksum is missing: it was changed, or a disk damaged it"
        raise ValueError(problem)
