"""What reports print as JSON: the base of all their objects, and numbers with an interval."""

from dataclasses import dataclass, fields
from typing import Any, Generic

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

Number_co = TypeVar("Number_co", bound=float | None, default=float, covariant=True)
Bound_co = TypeVar("Bound_co", bound=float | None, default=float | None, covariant=True)


class JsonForm(BaseModel):
    """An object whose keys are a contract: it cannot be changed, and a key that it does not have is an error."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)


@dataclass(frozen=True)
class Interval(Generic[Number_co, Bound_co]):
    """A number with its interval.

    A plain ``Interval`` has a number, and bounds that are None if a single unit cannot show them. The bounds of
    ``Interval[float, float]`` are known; the number of ``Interval[float | None]`` is None if nothing was measured.
    """

    __pydantic_config__ = ConfigDict(defer_build=True, extra="forbid")

    value: Number_co
    low: Bound_co
    high: Bound_co

    def __post_init__(self) -> None:
        _make_floats(self)


@dataclass(frozen=True)
class IntervalOverLaunches(Generic[Number_co]):
    """A number with its interval, and the range of the numbers behind it: of launches, trials or ratios."""

    __pydantic_config__ = ConfigDict(defer_build=True, extra="forbid")

    value: Number_co
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        _make_floats(self)


def _make_floats(interval: Interval[Any, Any] | IntervalOverLaunches[Any]) -> None:
    """Turn whole numbers and those of arrays into floats, so that JSON writes all alike."""
    for field in fields(interval):
        number = getattr(interval, field.name)
        object.__setattr__(interval, field.name, None if number is None else float(number))


NOT_MEASURED: Interval[float | None] = Interval(None, None, None)
"""Of a number that was not measured."""
