"""Collections of garbage as a cause, in place of the line of the script in which they happened."""

from collections.abc import Iterator

from steptime.attached.form import AttachedFinding, StepPart
from steptime.attached.step_parts import KeptSteps, is_in_turn
from steptime.units import format_count, format_seconds

_NOTABLE = 0.02
"""Share of a step."""
_FEWEST = 2
"""Steps with a collection: one alone comes not again with every step."""
_TOGETHER = 0.5
"""Share of the steps with a collection in which all ranks have one, where they collect at the same time."""


def garbage_findings(kept: KeptSteps, part: StepPart | None, steps: int) -> Iterator[AttachedFinding]:
    """Yield what collections of garbage cost, where that is worth a sentence.

    Args:
        kept: the steps.
        part: what collections are of a step; None without any.
        steps: of the whole job.
    """
    rows = [step.collections for number in kept.numbers for step in kept.attempt.steps[number] if step.collections]
    count = sum(row[0] for row in rows)
    if part is None or len(rows) < _FEWEST or not part.time_s.value:
        return
    in_turn = is_in_turn(part)
    cost_s = (part.gain_s if in_turn else part.time_s).value or 0.0
    step_s = float(kept.length_s.mean())
    if cost_s < _NOTABLE * step_s:
        return
    longest = format_seconds(max(row[1] for row in rows) * 1e-9)
    mean, share = format_seconds(part.time_s.value), 100 * part.time_s.value / step_s
    waiting = f"; the others wait for whoever collects: a step is {format_seconds(cost_s)} longer for it"
    sentence = (
        f"Python's garbage collection takes {mean} of each step, {share:.0f} %, in "
        f"{format_count(count, 'collection')} of up to {longest}{_when(kept)}{waiting if in_turn else ''}"
    )
    yield AttachedFinding(kind="garbage_collection", sentence=sentence, lost_s=cost_s * steps)


def _when(kept: KeptSteps) -> str:
    """Return whether ranks collect in the same steps."""
    if len(kept.attempt.ranks) < 2:  # noqa: PLR2004 - alone
        return ""
    collecting = [[bool(step.collections) for step in kept.attempt.steps[number]] for number in kept.numbers]
    some, together = sum(map(any, collecting)), sum(map(all, collecting))
    return ", on all ranks in the same steps" if together > _TOGETHER * some else ", on the ranks at different times"
