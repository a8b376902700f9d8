"""Combinations that a study leaves out, or adds to those of its axes."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from steptime.study.choices import LoaderChoice, WorkloadChoice
from steptime.study.notation import NameAllowed, OneOrMany, from_name
from steptime.study.quantities import Count, Device, OptionValue, Precision, Strict
from steptime.study.trial import ServerPlacement

NamedWorkload = Annotated[WorkloadChoice, BeforeValidator(from_name), NameAllowed()]
NamedLoader = Annotated[LoaderChoice, BeforeValidator(from_name), NameAllowed()]
Options = dict[str, dict[str, OneOrMany[OptionValue]]]


class Exclusion(Strict):
    """Drops the combinations that have, on every axis named here, one of the values given."""

    frameworks: OneOrMany[str] | None = None
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[str] | None = None
    loaders: OneOrMany[str] | None = None
    workers: OneOrMany[Count] | None = None
    servers: OneOrMany[Count] | None = None
    server_placement: OneOrMany[ServerPlacement] | None = None
    batch_per_worker: OneOrMany[Count] | None = None
    global_batch: OneOrMany[Count] | None = None
    precision: OneOrMany[Precision] | None = None
    device: OneOrMany[Literal["cpu", "cuda"]] | None = None
    options: Options | None = None

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Exclusion":
        if not named_axes(self):
            message = "names no axis; an empty exclusion would drop every combination"
            raise ValueError(message)
        return self


class Inclusion(Strict):
    """Adds combinations: the study's axes, with the axes named here replaced. What is included cannot be excluded."""

    frameworks: OneOrMany[str] | None = None
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[NamedWorkload] | None = None
    """A name that the study lists keeps the settings it has there."""
    loaders: OneOrMany[NamedLoader] | None = None
    workers: OneOrMany[Count] | None = None
    servers: OneOrMany[Count] | None = None
    server_placement: OneOrMany[ServerPlacement] | None = None
    batch_per_worker: OneOrMany[Count] | None = None
    """Wins over a workload's own batch."""
    global_batch: OneOrMany[Count] | None = None
    """Wins over a workload's own batch."""
    precision: OneOrMany[Precision] | None = None
    device: OneOrMany[Device] | None = None
    options: Options | None = None

    @model_validator(mode="after")
    def _names_an_axis(self) -> "Inclusion":
        if not named_axes(self):
            message = "names no axis; it would add nothing to the study"
            raise ValueError(message)
        return self


AXES = tuple(Exclusion.model_fields)
"""The keys that may hold several values, each of which gives trials of its own."""


def named_axes(combination: Exclusion | Inclusion) -> dict[str, Any]:
    """Return the axes that ``combination`` names, with their values."""
    return {axis: value for axis in AXES if (value := getattr(combination, axis)) is not None}
