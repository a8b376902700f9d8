"""The quantities that stand in a study file: their ranges, and how people write them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from steptime.study.notation import (
    as_option_value,
    as_sides,
    as_text_of_option,
    bit_rate,
    seconds,
    share,
)

Count = Annotated[int, Field(ge=1)]
OptionValue = Annotated[Any, BeforeValidator(as_option_value), WithJsonSchema(as_text_of_option())]
Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["8m"]}]}),
]
Share = Annotated[
    float,
    BeforeValidator(share),
    Field(gt=0, le=0.5),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["1%"]}]}),
]
Delay = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["2ms"]}]}),
]
BitRate = Annotated[
    float,
    BeforeValidator(bit_rate),
    Field(ge=1e5),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["200Mbit/s"]}, {"type": "number", "minimum": 1e5}]}),
]
CpuShare = Annotated[
    float,
    BeforeValidator(share),
    Field(ge=0.05, le=1),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["50%"]}]}),
]
Sides = Annotated[
    tuple[Count, Count],
    BeforeValidator(as_sides),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
            ]
        }
    ),
]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]


class Strict(BaseModel):
    """A part of a study file: unknown keys are mistakes, and nothing is taken for what it is not."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
