"""The kinds of launches that a trial has records of: a row each, over which the store and its readers loop."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from steptime.results.ablation_records import AblationLaunch, read_ablation
from steptime.results.accuracy_records import TrainingRun, read_training
from steptime.results.loader_records import LoaderLaunch, read_loader
from steptime.results.records import Launch, read_launch
from steptime.results.stored_record import Reader, TrialLaunch

KeptRecord = TypeVar("KeptRecord", bound=TrialLaunch)


@dataclass(frozen=True)
class RecordKind(Generic[KeptRecord]):
    """One kind of launches of a trial."""

    record: type[KeptRecord]
    read: Reader[KeptRecord]
    file: str
    """In the trial's folder, a line for each launch."""
    counted: str | None
    """What the keys for its good and its failed launches begin with in ``steptime status``; None if it has none."""


TIMING = RecordKind(Launch, read_launch, "records.jsonl", counted="")
ABLATION = RecordKind(AblationLaunch, read_ablation, "ablation.jsonl", counted="ablations_")
LOADING = RecordKind(LoaderLaunch, read_loader, "loader.jsonl", counted=None)
TRAINING = RecordKind(TrainingRun, read_training, "training.jsonl", counted="trainings_")

RECORD_KINDS: tuple[RecordKind[Any], ...] = (TIMING, ABLATION, LOADING, TRAINING)


def kind_of(record: TrialLaunch) -> RecordKind[Any]:
    """Return the kind of which a record is."""
    return next(kind for kind in RECORD_KINDS if isinstance(record, kind.record))
