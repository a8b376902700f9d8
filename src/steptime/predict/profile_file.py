"""The file of a profile."""

import json
from pathlib import Path

from pydantic import ValidationError

from steptime.errors import StoreError
from steptime.measurements.jsonlines import write_whole
from steptime.predict.profile import SCHEMA, Profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write ``profile``; raises StoreError when it cannot be written."""
    write_whole(path, (profile.model_dump_json(by_alias=True) + "\n").encode())


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises StoreError when there is none, when it is damaged, or when it has another schema: its numbers would mean
    something else here.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"there is no profile {path}; make one: steptime fit RESULTS -o {path}"
        raise StoreError(message) from None
    except IsADirectoryError:
        message = f"{path} is a folder, not a profile; if it holds results: steptime fit {path} -o PROFILE"
        raise StoreError(message) from None
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read as a profile ({error}); make it again: steptime fit RESULTS -o {path}"
        raise StoreError(message) from error
    try:
        data = json.loads(text)
    except ValueError as error:
        message = f"{path} is no profile or a damaged one ({error}); make it again: steptime fit RESULTS -o {path}"
        raise StoreError(message) from error
    if not isinstance(data, dict) or "groups" not in data:
        message = f"{path} is no profile: it has no groups; make one: steptime fit RESULTS -o {path}"
        raise StoreError(message)
    if data.get("schema") != SCHEMA:
        message = (
            f"{path}, key schema: this profile has schema {data.get('schema')!r}, written by steptime "
            f"{data.get('written_by', 'of an unknown version')}, and this steptime reads {SCHEMA}; "
            f"fit the results again: steptime fit RESULTS -o {path}"
        )
        raise StoreError(message)
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = (
            f"{path}, key {place}: {first['msg']}; the file was changed; fit again: steptime fit RESULTS -o {path}"
        )
        raise StoreError(message) from error
