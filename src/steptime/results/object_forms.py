"""The forms of the JSON objects of a results folder, by the names of their files."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from steptime.results.attached_files import AttachedHeader
from steptime.results.peaks import StoredPeaks
from steptime.results.stored_record import Count, Quantity, StoredObject
from steptime.study.paper import ModelFamily, Paper, PredictionChoice, Published, PublishedEfficiency


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


_DEFERRED = ConfigDict(defer_build=True)
FORMS: Mapping[str, TypeAdapter[Any]] = {
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
