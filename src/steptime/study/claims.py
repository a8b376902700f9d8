"""What others published, to stand beside what a study measures."""

from typing import Annotated

from pydantic import Field

from steptime.study.notation import OneOrMany
from steptime.study.quantities import Strict


class Side(Strict):
    """Trials that a published ratio speaks of: those that have, on every axis named here, one of the values given."""

    frameworks: OneOrMany[str]
    strategies: OneOrMany[str] | None = None
    workloads: OneOrMany[str] | None = None


class Published(Strict):
    """A ratio that somebody published, to stand beside the one measured here."""

    claim: str
    """What was found, in a few words."""
    source: str
    """Who published it, where."""
    slower: Side
    faster: Side
    ratio: Annotated[float, Field(gt=0)]
    """Time of `slower` divided by time of `faster`, as published."""
