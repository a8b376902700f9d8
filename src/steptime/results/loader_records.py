"""The record of one loader launch, one line in the trial's ``loader.jsonl``: batches that are not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from steptime.results.stored_record import (
    STRICT,
    ClockReadings,
    Count,
    Facts,
    Quantity,
    Seconds,
    TrialLaunch,
    WorkerEvidence,
    record_reader,
)

StretchName = Literal["first", "later"]


@dataclass(frozen=True)
class LoaderStretch:
    """Batches that one worker took one after the other: of the first epoch, or of later ones."""

    __pydantic_config__ = STRICT

    name: StretchName
    origin_s: Seconds
    """When the first counted batch was asked for, on the host's monotonic clock."""
    ends_s: list[Seconds]
    """When each batch was there."""
    usage: dict[str, Quantity]
    """``cpu_s`` of the worker and ``helpers_cpu_s`` of its helpers meanwhile, ``memory_bytes`` and
    ``helpers_memory_bytes`` of both at the end, and more: worker/usage.py."""


@dataclass(frozen=True)
class WorkerLoading:
    """What one worker's loader did."""

    __pydantic_config__ = STRICT

    rank: Count
    host: str
    stretches: list[LoaderStretch]
    """The first epoch, then later ones where the first was short enough."""
    batches_per_epoch: Count
    batches_ahead: Count
    """That the loader may hold ready; they are taken before each stretch and not counted."""
    facts: Facts


@dataclass(frozen=True)
class PageCache:
    """The system's page cache of the dataset's files before a launch."""

    __pydantic_config__ = STRICT

    share_before: Quantity | None
    """The share of the files' pages that were in memory; None if the system does not say."""
    share_after: Quantity | None
    """Likewise, after they were dropped."""
    files: Count
    """That were dropped."""

    @property
    def dropped(self) -> bool:
        """Whether the first epoch really had to read from the disk."""
        return self.share_after is not None and self.share_after <= _LEFT


_LEFT = 0.05
"""A share of pages in memory that is taken for none: some are read again by whoever looks at the folder."""


@dataclass(frozen=True, kw_only=True)
class LoaderLaunch(TrialLaunch):
    """One loader launch."""

    kind = "loader"
    written_before: ClassVar = {
        "trial": "launch",
        "workers": "stderr",
        "page_cache": "stderr",
        "schedule": "environment_variables",
    }

    workers: list[WorkerLoading] = field(default_factory=list)
    page_cache: PageCache | None = None
    """None if it was not looked at."""
    schedule: dict[str, Quantity] | None = None
    """As in a timed launch."""

    def evidence(self) -> Sequence[WorkerEvidence]:
        return [
            WorkerEvidence(
                rank=worker.rank,
                host=worker.host,
                facts=worker.facts,
                steps=[len(worker.stretches), worker.batches_per_epoch],
                readings=[
                    ClockReadings([stretch.origin_s, *stretch.ends_s], stretch.usage.get("wall_s"))
                    for stretch in worker.stretches
                ],
            )
            for worker in self.workers
        ]


def _stretches_fit(launch: LoaderLaunch) -> None:
    """Raise ValueError where a good launch lacks the first epoch, or a stretch has no batch or took no time."""
    if launch.status != "ok":
        return
    if not launch.workers:
        message = "workers: a good launch has one at least"
        raise ValueError(message)
    for worker in launch.workers:
        names = [stretch.name for stretch in worker.stretches]
        if names not in (["first"], ["first", "later"]):
            message = f"workers.{worker.rank}.stretches: not the first epoch and later ones"
            raise ValueError(message)
        for stretch in worker.stretches:
            if not stretch.ends_s or not stretch.ends_s[-1] > stretch.origin_s:
                message = f"workers.{worker.rank}.stretches.{stretch.name}: no batch, or no time"
                raise ValueError(message)


read_loader = record_reader(LoaderLaunch, _stretches_fit)
