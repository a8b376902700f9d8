"""The quantities in a study file: their ranges, and the ways to write them, as ``8m`` for seconds or ``1%``.

The keys of a workload that is a user's own module.
"""

import re
import shlex
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from steptime.study.environment_variables import variable_text
from steptime.units import (
    DURATIONS,
    LEAST_BARE_S,
    parse_bit_rate,
    parse_delay,
    parse_duration,
    parse_share,
    require_unit,
)

T = TypeVar("T")


@dataclass(frozen=True)
class _ScalarAllowed:
    """Says in the JSON Schema that a single value stands for a list of one."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


@dataclass(frozen=True)
class NameAllowed:
    """Says in the JSON Schema that a name stands for a mapping of which only the name is given."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _as_list(value: Any) -> Any:  # noqa: ANN401 - whatever the file holds; so in all functions below
    return value if value is None or isinstance(value, list) else [value]


OneOrMany = Annotated[list[T], BeforeValidator(_as_list), _ScalarAllowed()]


@dataclass(frozen=True)
class NamesAllowed:
    """Says in the JSON Schema that a list of names stands for a mapping of which only the names are given."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = handler(schema)
        names = [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
        return {"anyOf": [*names, *own.get("anyOf", [own])]}


def from_name(value: Any) -> Any:  # noqa: ANN401
    """Return the mapping that a bare name stands for."""
    return {"name": value} if isinstance(value, str) else value


@dataclass(frozen=True)
class CommandLineAllowed:
    """Says in the JSON Schema that a text, split as a shell splits it, stands for the list of its words."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        own = handler(schema)
        return {"anyOf": [{"type": "string"}, *own.get("anyOf", [own])]}


def words_of(value: Any) -> Any:  # noqa: ANN401
    """Return the words of a command that is written as one text, by a shell's rules of quotes; lists as they are.

    Raises ValueError where a quote is not closed.
    """
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        message = f"{value!r} cannot be split into words ({error}); close the quote, or write a list of words"
        raise ValueError(message) from error


def _printable(word: str) -> str:
    if not word.isprintable():
        message = f"{word!r} holds a control character, which no word of a command needs"
        raise ValueError(message)
    return word


def _started_by_a_program(words: list[str]) -> list[str]:
    if words and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0]):
        message = f"begins with {words[0]!r}, which sets a variable; write it under environment_variables"
        raise ValueError(message)
    if not words or not words[0] or words[0].startswith("-"):
        message = "begins with no program; write the program and its arguments, as [apptainer, exec, --nv, IMAGE]"
        raise ValueError(message)
    return words


def as_no_number(value: Any) -> Any:  # noqa: ANN401
    """Return `true` and `false`, which Python takes for 1 and 0, as texts, and anything else as it is."""
    return str(value).lower() if isinstance(value, bool) else value


def form_if_true(value: Any) -> Any:  # noqa: ANN401
    """Return the mapping that `true` stands for, None for `false`, and anything else as it is."""
    return ({} if value else None) if isinstance(value, bool) else value


@dataclass(frozen=True)
class TrueAllowed:
    """Says in the JSON Schema that `true` stands for a mapping with nothing in it, and `false` for none."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "boolean"}, handler(schema)]}


def as_sides(value: Any) -> Any:  # noqa: ANN401
    """Return (height, width) for a side or a pair; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        message = f"{value!r} is not an image size; write a side in pixels, or [height, width]"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    if isinstance(value, int):
        return (value, value)
    if len(value) != 2:  # noqa: PLR2004 - height and width
        message = f"{value!r} is not an image size; write a side in pixels, or [height, width]"
        raise ValueError(message)
    return tuple(value)


def as_option_value(value: Any) -> Any:  # noqa: ANN401
    """Return an option's value unchanged; raises ValueError where it is not a single value."""
    finite = isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value))
    if not finite:
        message = f"{value!r} is not a value of an option; write true or false, a number or a text"
        raise ValueError(message)
    return value


def as_text_of_option() -> JsonSchemaValue:
    """Return the JSON Schema of an option's value."""
    return {"type": ["boolean", "number", "string"]}


def seconds(value: Any) -> float:  # noqa: ANN401
    """Return the seconds of a duration such as ``90``, ``8m`` or ``1h30m``; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        message = f"{value!r} is not a duration; write {DURATIONS}"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    return parse_duration(value)


def with_a_unit(value: Any) -> Any:  # noqa: ANN401
    """Return a duration as it was written; raises ValueError for so few seconds that minutes may have been meant."""
    require_unit(value, LEAST_BARE_S)
    return value


def job_seconds(value: Any) -> float:  # noqa: ANN401
    """Return the seconds of a time as sbatch takes it, or of a duration with units; raises ValueError for others.

    sbatch has minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S; a whole number has no unit and is one of minutes.
    """
    text = str(value).strip()
    if isinstance(value, (float, bool)) or not isinstance(value, (int, str)) or re.search("[a-zA-Z\u00b5.]", text):
        return seconds(value)
    days, dash, clock = text.rpartition("-") if "-" in text else ("0", "", text)
    parts = clock.split(":")
    units = (3600, 60, 1) if dash or len(parts) == len(("h", "m", "s")) else (60, 1)
    if len(parts) > len(units) or not all(re.fullmatch("[0-9]{1,9}", each) for each in (days, *parts)):
        message = f"{value!r} is not a time of a job; write for example 90m, or as sbatch 1:30:00, 1-12 or 90 (minutes)"
        raise ValueError(message)
    return float(86400 * int(days) + sum(unit * int(each) for unit, each in zip(units, parts, strict=False)))


_LONGEST_DELAY_S = 10.0
"""Behind it no connection is made before its attempts end."""


def delay(value: Any) -> float:  # noqa: ANN401
    """Return the seconds of a delay between emulated hosts, as ``2ms``; raises ValueError for anything else."""
    found = seconds(value) if isinstance(value, bool) or not isinstance(value, (int, str)) else parse_delay(value)
    if found > _LONGEST_DELAY_S:
        message = f"a delay must be at most {_LONGEST_DELAY_S:g}s, not {value}; with a longer one no connection is made"
        raise ValueError(message)
    return found


def share(value: Any) -> float:  # noqa: ANN401
    """Return a share such as ``1%`` or ``0.01`` as a number; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        message = f"{value!r} is not a share; write for example 5% or 0.05"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    return parse_share(value)


def bit_rate(value: Any) -> float:  # noqa: ANN401
    """Return the bits per second of a rate such as ``200Mbit/s``, or of a number; raises ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        message = f"{value!r} is not a bit rate; write for example 200Mbit/s or 1Gbit/s"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    return parse_bit_rate(value) if isinstance(value, str) else float(value)


def by_number(value: Any) -> Any:  # noqa: ANN401
    """Return a mapping whose keys, which YAML's text has as text, are numbers where they can be."""
    if not isinstance(value, dict):
        return value
    return {int(key) if isinstance(key, str) and key.isdecimal() else key: each for key, each in value.items()}


Command = Annotated[
    list[Annotated[str, Field(max_length=4096), AfterValidator(_printable)]],
    Field(max_length=200),
    AfterValidator(_started_by_a_program),
]
"""The words of a command: a program and its arguments."""
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
MOST_PROCESSES = 1024
ProcessCount = Annotated[int, Field(ge=1, le=MOST_PROCESSES)]
"""Of processes, hosts or threads, which are all on this machine."""
WorkerCount = Annotated[int, Field(ge=1, le=1_000_000)]
"""Of workers that are predicted and never started."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""What every framework's generator of random numbers takes."""
_VARIABLE = {"type": ["string", "number", "null"]}


def variable_values(value: Any) -> Any:  # noqa: ANN401
    """Return the texts of one environment variable as a list, or those of a framework's variables by name.

    Raises ValueError where a value cannot be an environment variable's.
    """
    if isinstance(value, dict):
        return {name: variable_values(_no_mapping(below)) for name, below in value.items()}
    values = value if isinstance(value, list) else [value]
    if not values:
        message = "an empty list is not a choice; give a value, or leave the key out"
        raise ValueError(message)
    return [variable_text(each) for each in values]


def _no_mapping(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        message = f"{value!r} is not a value of an environment variable; write a text or a number"
        raise ValueError(message)  # noqa: TRY004 - pydantic collects ValueErrors
    return value


VariableValues = Annotated[
    Any,
    BeforeValidator(variable_values),
    WithJsonSchema(
        {
            "anyOf": [
                _VARIABLE,
                {"type": "array", "items": _VARIABLE},
                {
                    "type": "object",
                    "additionalProperties": {"anyOf": [_VARIABLE, {"type": "array", "items": _VARIABLE}]},
                },
            ]
        }
    ),
]
OptionValue = Annotated[Any, BeforeValidator(as_option_value), WithJsonSchema(as_text_of_option())]
_LONGEST_S = 1e8
"""Three years, which no launch and no budget needs."""
Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(gt=0, le=_LONGEST_S),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["8m"]}]}),
]
Budget = Annotated[Duration, BeforeValidator(with_a_unit)]
JobTime = Annotated[
    float,
    BeforeValidator(job_seconds),
    Field(gt=0, le=_LONGEST_S),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["8m", "1-12:00"]}]}
    ),
]
Share = Annotated[
    float,
    BeforeValidator(share),
    Field(gt=0, le=0.5),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["1%"]}]}),
]
Accuracy = Annotated[
    float,
    BeforeValidator(share),
    Field(gt=0, le=1),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["98.5%"]}]}),
]
EfficiencyShare = Annotated[
    float,
    BeforeValidator(share),
    Field(gt=0, le=2),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["90%"]}]}),
]
Delay = Annotated[
    float,
    BeforeValidator(delay),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["2ms"]}]}),
]
BitRate = Annotated[
    float,
    BeforeValidator(bit_rate),
    Field(ge=1e5, le=1e14),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["200Mbit/s"]}, {"type": "number", "minimum": 1e5}]}),
]
CpuShare = Annotated[
    float,
    BeforeValidator(share),
    Field(ge=0.05, le=1),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["50%"]}]}),
]
_Side = Annotated[int, Field(ge=1, le=16384)]
_SIDE_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 16384}
Sides = Annotated[
    tuple[_Side, _Side],
    BeforeValidator(as_sides),
    WithJsonSchema(
        {
            "anyOf": [
                _SIDE_SCHEMA,
                {"type": "array", "items": _SIDE_SCHEMA, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
Device = Literal["auto", "cpu", "cuda"]


class Strict(BaseModel):
    """A part of a study file: unknown keys are mistakes, and nothing is taken for what it is not."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


_KEYS = ("module", "data", "loss")
"""Keys of a workload that is a module of the user's."""


class OwnModuleKeys(Strict):
    """What a workload has that is a module of the user's."""

    module: str | None = None
    """Your own module, as `PACKAGE.MODULE:FUNCTION`; docs/own-module.md describes its functions."""
    data: str | None = None
    """Its function of `(rank, size, batch)` that returns an iterable of batches."""
    loss: str | None = None
    """Its function of `(module, batch)`; by default cross entropy, or the `.loss` of a mapping's output."""

    @model_serializer(mode="wrap")
    def _without_module(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the form that there was before there were modules of users, where there is none."""
        written: dict[str, Any] = serialized(self)
        return {key: value for key, value in written.items() if key not in _KEYS or value is not None}
