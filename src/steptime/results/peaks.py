"""The products of matrices that a device makes per second: measured (``steptime peak``), or those of its data sheet."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from steptime.catalog.accelerators import data_sheet_flop_per_s
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.results.stored_record import Count, Quantity, StoredObject

if TYPE_CHECKING:
    from steptime.study.trial import Trial

PEAKS = "peaks"
"""The object of a results folder that holds ``StoredPeaks``."""


class Peak(StoredObject):
    """The products of matrices that one device makes per second, measured alone."""

    device: Literal["cpu", "cuda"]
    precision: str
    threads: Count
    """Of the processor; 0 of a GPU."""
    library: str
    version: str
    size: Count
    """Rows and columns of the matrices."""
    flop_per_s: list[Quantity] = Field(min_length=1)
    """Of each round."""

    @property
    def interval(self) -> Interval[float, float]:
        """The median round between the slowest and the quickest."""
        return Interval(median(self.flop_per_s), min(self.flop_per_s), max(self.flop_per_s))

    @property
    def by(self) -> str:
        """What multiplied."""
        return f"{self.library} {self.version}, {self.size} rows"

    @property
    def setting(self) -> tuple[str, str, int]:
        """What was measured."""
        return self.device, self.precision, self.threads


class StoredPeaks(StoredObject):
    """All that were measured for a results folder."""

    peaks: list[Peak] = Field(default_factory=list)


def setting_of(trial: "Trial") -> tuple[str, str, int]:
    """Return device, precision and threads whose peak a trial's MFU needs."""
    return (trial.device, trial.precision, trial.threads if trial.device == "cpu" else 0)


Denominator = tuple[Interval[float | None], Literal["measured", "data sheet"] | None]
"""Products of matrices per second of a device, and the source."""


def peak_of(setting: tuple[str, str, int], gpus: Sequence[str], peaks: StoredPeaks) -> Denominator:
    """Return the peak of a setting: as it was measured, else that of the data sheet of ``gpus`` of one name."""
    measured = next((each for each in peaks.peaks if each.setting == setting), None)
    if measured is not None:
        found = measured.interval
        return Interval(found.value, found.low, found.high), "measured"
    sheet = data_sheet_flop_per_s(gpus[0], setting[1]) if len(set(gpus)) == 1 else None
    return (NOT_MEASURED, None) if sheet is None else (Interval(sheet, None, None), "data sheet")


def share_of_peak(rate: Interval[float | None], peak: Interval[float | None]) -> Interval[float | None]:
    """Return MFU: products of matrices per second as a share of what a device could make."""
    if rate.value is None or peak.value is None:
        return NOT_MEASURED
    if rate.low is None or rate.high is None:
        return Interval(rate.value / peak.value, None, None)
    return Interval(rate.value / peak.value, rate.low / (peak.high or peak.value), rate.high / (peak.low or peak.value))
