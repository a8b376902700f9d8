"""Reading the files of a results folder: what does not belong is set aside, what is newer refused."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

import steptime
from steptime.errors import StoreError
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader
from steptime.results.consistency import AnyRecord, FileCheck, Misfit, SetAside
from steptime.results.jsonlines import parse_line, schema_of_signed, whole_lines
from steptime.results.peaks import StoredPeaks
from steptime.results.stored_record import (
    SCHEMA,
    STRICT,
    Count,
    Quantity,
    Reader,
    Record,
    StoredObject,
    first_mistake,
)
from steptime.study.paper import ModelFamily, Paper, PredictionChoice, Published, PublishedEfficiency
from steptime.study.trial import Trial


class StoredMachine(StoredObject):
    """The fingerprint of a machine: what the report computes with, and any other plain values."""

    model_config = ConfigDict(defer_build=True, extra="allow")
    __pydantic_extra__: dict[str, str | bool | Quantity | None]

    cores: Count | None = None
    quota_cores: Quantity | None = None
    memory_bytes: Quantity | None = None
    gpus: list[dict[str, str | Quantity | None]] | None = None


class StoredVerdict(StoredObject):
    """Why a trial has no result, or no rank."""

    status: Literal["failed", "not_equivalent", "unranked"]
    reason: str


class StoredSkips(StoredObject):
    """Combinations of a study that cannot be, one line per reason."""

    lines: list[str] = Field(default_factory=list)


class StoredLeftOut(StoredObject):
    """How many files of a folder of images were not used, for one reason."""

    reason: str
    kind: str
    count: Count


class StoredContents(StoredObject):
    """What of a folder of images or text was used, and what was not."""

    samples: Count
    classes: Count
    validation: Count = 0
    documents: Count | None = None
    left_out: list[StoredLeftOut] = Field(default_factory=list)


class StoredStudy(BaseModel):
    """study.json, as far as it is read here."""

    class Question(BaseModel):
        """A study with all defaults filled in."""

        name: str = ""
        question: str = ""
        paper: Paper | None = None
        published: list[Published] = []
        published_efficiency: list[PublishedEfficiency] | None = None
        performance_models: list[ModelFamily] | None = None
        predictions: PredictionChoice | None = None
        equivalence: dict[str, Any] | None = None

    written_by: str = "of a newer version"
    study: Question


class StoredSites(StoredObject):
    """The hosts that runs found, one object each."""

    sites: list[dict[str, Any]] = Field(default_factory=list)


class StoredRequeues(StoredObject):
    """How often a Slurm job was queued again."""

    job: str
    count: Count


_SIGNED = 2
"""The schema from which on lines have a checksum."""
_SIGNED_SCHEMAS = range(1, SCHEMA + 1)
_DEFERRED = ConfigDict(defer_build=True)
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any], config=STRICT)
_FORMS: Mapping[str, TypeAdapter[Any]] = {
    "study.json": TypeAdapter(StoredStudy),
    "machine.json": TypeAdapter(StoredMachine),
    "verdicts.json": TypeAdapter(dict[str, StoredVerdict], config=_DEFERRED),
    "skipped.json": TypeAdapter(StoredSkips),
    "datasets.json": TypeAdapter(dict[str, StoredContents], config=_DEFERRED),
    "implementations.json": TypeAdapter(dict[str, dict[str, str]], config=_DEFERRED),
    "sites.json": TypeAdapter(StoredSites),
    "requeues.json": TypeAdapter(StoredRequeues),
    "peaks.json": TypeAdapter(StoredPeaks),
    "attached.json": TypeAdapter(AttachedHeader),
}
"""By name, the form of a file that holds one JSON object; others may hold any object."""


class ResultsFiles:
    """The files of one results folder, as far as they are read.

    Lines of records that are damaged, or are no launch of their trial, are set aside. Whatever else is damaged, or has
    a newer schema, raises StoreError.
    """

    def __init__(self, path: Path) -> None:
        """Read from the folder ``path``."""
        self.path = path
        self._folder = PlainFolder(path)
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

    def header(self) -> dict[str, Any]:
        """Return the content of study.json: schema, the steptime that wrote it, and the study."""
        path = self.path / "study.json"
        header = self.json_object(path)
        if header is None:
            message = f"{path} is gone; the records of the trials are in {self.path / 'trials'}"
            raise StoreError(message)
        return header

    def text(self, path: Path) -> str:
        """Return the text of a file."""
        try:
            return self._folder.read(path).decode()
        except (FileNotFoundError, UnicodeDecodeError) as error:
            message = f"{path} is damaged ({error}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error

    def json_object(self, path: Path) -> dict[str, Any] | None:
        """Return the JSON object of a file; None if there is no file."""
        try:
            data = self._folder.read(path)
        except FileNotFoundError:
            return None
        try:
            value = _OBJECT.validate_json(data)
            if path.name == "study.json":
                self.check_schema(value, path)
            if path.name in _FORMS:
                _FORMS[path.name].validate_json(data)
        except ValueError as error:
            problem = first_mistake(error) if isinstance(error, ValidationError) else str(error)
            message = f"{path} is damaged ({problem}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error
        return value

    def check_schema(self, value: Mapping[str, Any], path: Path) -> int:
        """Return the schema.

        Raises StoreError for what a newer steptime wrote, naming that one, and ValueError for no schema.
        """
        schema = value.get("schema")
        if not isinstance(schema, int) or schema < 1:
            problem = "schema: it is not a number from 1 on"
            raise ValueError(problem)
        if schema <= SCHEMA:
            return schema
        header = value if "written_by" in value else self.header()
        message = (
            f"{path} has schema {schema!r}; this steptime ({steptime.__version__}) reads up to {SCHEMA}. "
            f"Use steptime {header.get('written_by', 'of a newer version')} or newer"
        )
        raise StoreError(message)


def default_profile_path(folder: Path) -> Path:
    """Return the path of the profile of a results folder, where a command names no other."""
    whole = folder.resolve()
    return whole.with_name(whole.name + ".profile.json")


def _refuse_unsigned(schema: int) -> None:
    if schema >= _SIGNED:
        problem = "its checksum is missing: it was changed, or a disk damaged it"
        raise ValueError(problem)
