"""The records of equivalence checks, one line each."""

from dataclasses import dataclass, field
from typing import Any

from steptime.results.stored_record import (
    Count,
    Option,
    StoredRecord,
    nothing_to_check,
    record_reader,
)


@dataclass(frozen=True)
class EquivalenceResult(StoredRecord):
    """What the equivalence check found for one framework, strategy and workload."""

    kind = "equivalence"

    framework: str
    framework_version: str
    strategy: str
    workload: str
    input_shape: list[Count]
    workers: Count
    repeats: Count
    """Launches that were compared."""
    steps: Count
    """Of the longest launch."""
    parameters: int | None
    parameters_expected: int
    output_shape: list[int] | None
    first_loss_error: float | None
    """Relative, against the reference, with the same weights and the same batch."""
    last_loss_error: float | None
    """Relative, the largest of all rounds behind the first."""
    weight_error: float | None
    """Largest distance of an array of weights from the reference's after any round, relative to its length."""
    update_error: float | None
    """Likewise, but of an array's update in one round, relative to the length of the update."""
    update_rounding: float | None
    """The same of the reference in single precision against itself in double: what no framework can better."""
    passed: bool
    reason: str | None
    """Why it did not pass."""
    options: dict[str, Option] = field(default_factory=dict)
    """Of the framework."""
    environment_variables: dict[str, str] = field(default_factory=dict)
    """That the study set, which may change arithmetic."""
    crashes: Count = 0
    """Runs that a signal ended and that were repeated: a crash is not a wrong number, but worth knowing."""
    learning_rate: float | None = None
    """With which all were trained; below the trial's where its own makes the loss grow. None in older records, and
    where the reference failed."""
    gradient_error: float | None = None
    """As ``update_error``, of the gradient of the first step, with what weight decay adds to it. None in older records
    and where workers do not wait for each other."""
    gradient_rounding: float | None = None
    """As ``update_rounding``."""
    rounds: Count = 0
    """Of steps that were compared by themselves, over all launches; 0 in older records."""
    optimizer: str = "sgd"
    """The name of the optimizer that was compared."""
    trials: list[str] | None = None
    """The ids of the study's trials that it covers; None in older records."""
    unranked: str | None = None
    """Why trials with these options have no rank although they pass; None if they have one."""
    explanation: str | None = None
    """What makes several workers with a user's module train otherwise than one with their joined batches."""
    checked_at: str | None = None
    """When the check was made, UTC, ISO 8601; None in older records."""
    kept: bool = False
    """Whether an earlier run had made it."""

    def to_json(self) -> dict[str, Any]:
        """Return the line's object, without what older records have not where that is not known."""
        line = super().to_json()
        if self.explanation is None:
            del line["explanation"]
        if self.checked_at is None:
            del line["checked_at"], line["kept"]
        return line


read_equivalence = record_reader(EquivalenceResult, nothing_to_check)
