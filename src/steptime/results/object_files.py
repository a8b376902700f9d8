"""The files of a results folder that hold one JSON object each, or a text; and what schema they have."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import steptime
from steptime.errors import StoreError
from steptime.plain_file import PlainFolder
from steptime.results.stored_record import SCHEMA, STRICT, first_mistake


class ObjectFiles:
    """The objects and texts of one results folder; what is damaged, or has a newer schema, raises StoreError."""

    def __init__(self, path: Path) -> None:
        """Read from the folder ``path``."""
        self.path = path
        self._folder = PlainFolder(path)

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
            value = _any_object().validate_json(data)
            if path.name == "study.json":
                self.check_schema(value, path)
            _require_form(path.name, data)
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


@cache
def _any_object() -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(dict[str, Any], config=STRICT)


def _require_form(name: str, data: bytes) -> None:
    """Raise ValueError where a file of this name does not have its form; others may hold any object."""
    # Forms need the study, its workloads and all records, for which a command that is begun does not wait.
    from steptime.results.object_forms import FORMS  # noqa: PLC0415

    if name in FORMS:
        FORMS[name].validate_json(data)
