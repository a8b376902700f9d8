"""Types of the fields of records, which are strict.

A record may come from somebody else, or from a disk that is damaged. A line is read only where every field has its
type: a number is a number and finite, and counts are not negative. Keys that this version does not know are left out,
so that the same schema may gain keys.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from steptime.catalog.cluster import ClusterFindings

STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""For ``__pydantic_config__`` of the dataclasses of records: no text where a number belongs, no number for a flag."""

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Ranks, blocks and numbers of launches and steps; tables hold them in 32 bits."""
Bytes = Annotated[int, Field(ge=0, le=2**53)]
_LARGEST = 1e30
Quantity = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
"""Any measured number."""
Seconds = Annotated[float, Field(ge=-1e12, le=1e12)]
"""A time on a clock, or a difference of two, which may be negative."""
Duration = Annotated[float, Field(ge=0.0, le=1e12)]
"""Seconds that something took."""
Staleness = dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Count]
"""How many of a worker's updates were 0, 1, 2, … updates of others late."""
Option = bool | int | float | str


class StoredObject(BaseModel):
    """An object that somebody else may have written."""

    model_config = STRICT


class _Environment(StoredObject):
    name: str | None = None
    kind: str | None = None
    container: list[str] = []
    interpreter: str | None = None
    python: str | None = None
    packages: dict[str, str] = {}


class _StoredFramework(StoredObject):
    framework_version: str | None = None


def _fits(form: Any) -> AfterValidator:  # noqa: ANN401 - any type
    """Return the check that an object has the fields of ``form``, in their types; the object stays as it is."""
    adapter: TypeAdapter[Any] = TypeAdapter(form)

    def checked(value: dict[str, Any]) -> dict[str, Any]:
        found = adapter.validate_json(to_json(value))
        if not _moderate(value):
            message = f"a number is beyond {_LARGEST:g}"
            raise ValueError(message)
        if isinstance(found, ClusterFindings) and any(
            not 0 <= end < len(found.hosts) for path in found.paths for end in (path.source, path.target)
        ):
            message = "a path leads to a host that the cluster does not have"
            raise ValueError(message)
        return value

    return AfterValidator(checked)


def _moderate(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, (dict, list)):
        return all(map(_moderate, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (int, float)) or abs(value) <= _LARGEST


Environment = Annotated[dict[str, Any], _fits(_Environment)]
"""Name, kind, container (where there is one), interpreter, Python version and versions of the main packages of a
framework's environment."""
Facts = Annotated[dict[str, Any], _fits(_StoredFramework)]
"""What a framework reports of itself, its ``framework_version`` among it."""
FoundCluster = Annotated[dict[str, Any], _fits(ClusterFindings)]
"""The hosts and links that a launcher made, as it found them: see ``ClusterFindings`` of catalog/cluster.py."""


def first_mistake(error: ValidationError) -> str:
    """Return the key and the sentence of the first mistake that pydantic found."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
