"""Remarks below predictions: what columns mean, notes, and what to add to see more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steptime.document.section import Section, Sentences
from steptime.units import format_count

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.predict import Prediction


def remarks_section(
    found: "Sequence[Prediction]",
    baseline: str,
    unchanging: Sequence[str],
    left_out: str = "",
    *,
    folded: int | None = None,
) -> Section:
    """Return what columns mean, and notes: ``unchanging`` changes are without effect, ``left_out`` is said of workers.

    Of brief sections, beside which so many models are ``folded``, its last lines are what to add for these, and for all
    of one model.
    """
    terms = (
        f"Intervals are of 90 %. Efficiency is relative to {baseline}. Extrapolation, a column where it fits, is "
        "how far a configuration lies outside the measured ones, as a ratio."
    )
    notes = dict.fromkeys(f"note: {note}" for each in found for note in each.notes)
    unchanged = [f"note: {text} changes nothing here" for text in unchanging]
    key = next((each.key for each in found if not each.refused), None) if folded is not None else None
    more = (
        [f"Phases and limits of one: workload={key.workload} framework={key.framework} strategy={key.strategy}"]
        if key
        else []
    )
    more = [f"Steps of {format_count(folded, 'further model')}: --all", *more] if folded else more
    known = [Sentences([terms], "dim")] if any(each.step_s for each in found) else []
    return Section("Terms and notes", [*known, Sentences([*notes, *unchanged, *filter(None, [left_out]), *more])])
