"""Reading the files of a results folder: what is damaged is said, and what a newer steptime wrote is refused."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import steptime
from steptime.errors import StoreError
from steptime.measurements.jsonlines import read_lines
from steptime.measurements.plain_file import read_plain
from steptime.measurements.records import SCHEMA
from steptime.study.trial import Trial

Record = TypeVar("Record")


class ResultsFiles:
    """The files of one results folder, as far as they are read.

    ``problems`` collects what was found damaged in records, one sentence each. Whatever else is damaged, or has a
    newer schema, raises StoreError.
    """

    def __init__(self, path: Path) -> None:
        """Read from the folder ``path``."""
        self.path = path
        self.problems: list[str] = []

    def records(self, path: Path, parse: Callable[[dict[str, Any]], Record]) -> Iterator[Record]:
        """Yield the records of a file of JSON lines; damaged lines are skipped, and put down as problems."""
        for line in read_lines(path):
            problem = line.problem
            if line.value is not None:
                self.check_schema(line.value, path)
                try:
                    yield parse(line.value)
                    continue
                except (KeyError, TypeError) as error:
                    problem = f"{type(error).__name__}: {error}"
            place = f"{path.relative_to(self.path)}, line {line.number}"
            sentence = f"{place} is damaged and was skipped ({problem})"
            if sentence not in self.problems:
                self.problems.append(sentence)

    def trial(self, path: Path) -> Trial:
        """Return the configuration that a file describes."""
        try:
            # As JSON, because what JSON cannot tell apart (a list, a tuple) is strict otherwise.
            trial = Trial.model_validate_json(read_plain(path))
        except ValueError as error:
            message = f"{path} is damaged ({error}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error
        if trial.id != path.parent.name:
            message = f"{path} describes {trial.id}, not the trial of its folder; it was changed by hand or by accident"
            raise StoreError(message)
        return trial

    def header(self) -> dict[str, Any]:
        """Return what study.json says: schema, the steptime that wrote it, and the study."""
        path = self.path / "study.json"
        header = self.json_object(path)
        if header is None or "study" not in header:
            message = f"{path} is damaged: it has no study; the records of the trials are in {self.path / 'trials'}"
            raise StoreError(message)
        return header

    def text(self, path: Path) -> str:
        """Return the text of a file."""
        try:
            return read_plain(path).decode()
        except (FileNotFoundError, UnicodeDecodeError) as error:
            message = f"{path} is damaged ({error}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error

    def json_object(self, path: Path) -> dict[str, Any] | None:
        """Return the JSON object of a file; None where there is no file."""
        try:
            value = json.loads(read_plain(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            message = f"{path} is damaged ({error}); restore it from a copy, or choose another folder"
            raise StoreError(message) from error
        if not isinstance(value, dict):
            message = f"{path} is damaged: it holds no JSON object"
            raise StoreError(message)
        return value

    def check_schema(self, value: Mapping[str, Any], path: Path) -> None:
        """Refuse what a newer steptime wrote, naming that one."""
        schema = value.get("schema")
        if isinstance(schema, int) and schema <= SCHEMA:
            return
        header = value if "written_by" in value else self.header()
        message = (
            f"{path} has schema {schema!r}; this steptime ({steptime.__version__}) reads up to {SCHEMA}. "
            f"Use steptime {header.get('written_by', 'of a newer version')} or newer"
        )
        raise StoreError(message)
