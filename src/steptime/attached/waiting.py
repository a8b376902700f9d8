"""What is said of ranks that wait for one another."""

from collections.abc import Iterator

from steptime.attached.form import AttachedFinding, StepPart, WaitedFor
from steptime.attached.judged_steps import JudgedSteps, judged_steps
from steptime.attached.sampled_lines import at_line
from steptime.attached.step_parts import KeptSteps, title_of
from steptime.attached.straggler import is_last_beyond_chance
from steptime.results.json_form import Interval
from steptime.units import format_count, format_seconds, is_undecided

_NOTABLE_WAIT = 0.02
"""Share of a step that is worth a sentence."""
_LEAST_SHARE = 0.01
"""Of a part, that is worth a percentage; from the whole on, seconds alone are shown."""
_MOST_OF_IT = 0.5
"""Of all waiting: who causes as much is not one of many."""
_LAST = "is last more often than chance"
_PLURAL = {"no_grad", "copy"}
"""Parts whose titles are plural."""


def waiting_findings(
    kept: KeptSteps, whom: WaitedFor | None, waiting: StepPart | None, steps: int
) -> Iterator[AttachedFinding]:
    """Yield how long ranks wait for one another, and for whom.

    Args:
        kept: the steps.
        whom: they wait for.
        waiting: the part of a step; None if it is not known.
        steps: of the whole job.
    """
    if kept.exchange is None or waiting is None or whom is None or (waiting.share or 0.0) < _NOTABLE_WAIT:
        return
    judged = judged_steps(kept.exchange)
    alone = _alone(judged, (waiting.time_s.value or 0.0) * len(kept.numbers))
    if not (is_shown(waiting.time_s) or alone):
        return
    lost_s = (waiting.time_s.value or 0.0) * steps
    usual_s = judged.usual.waiting_s.sum() / len(kept.exchange.waiting_s)
    is_usual = usual_s >= _NOTABLE_WAIT * kept.length_s.mean(axis=0).sum()
    if not (whom.ranks and is_usual):
        wait = with_interval(waiting.time_s)
        by_whom = _not_named(whom, judged) if is_usual or not judged.alone else ""
        yield AttachedFinding(kind="waiting", sentence=f"ranks wait {wait} of each step{alone}{by_whom}", lost_s=lost_s)
        return
    rare = (
        f", in the {len(judged.judged.numbers)} of {len(judged.usual.numbers)} that exchange" if judged.is_rare else ""
    )
    wait = with_interval(whom.others_wait_s)
    sentence = f"the others wait {wait} of each step{rare} for {whom.title}{_longer_part(whom)}{alone}"
    yield AttachedFinding(kind="straggler", sentence=sentence, lost_s=lost_s)


def _alone(steps: JudgedSteps, waited_s: float) -> str:
    """Return which step has more of the waiting than all others, by which no rank is judged."""
    if steps.alone is None:
        return ""
    first = ", the first in which they exchange" if steps.is_first else ""
    length = format_seconds(steps.alone_share * waited_s)
    return f"; {percent(steps.alone_share)} of all waiting, {length}, lies in step {steps.alone} alone{first}"


def _longer_part(whom: WaitedFor) -> str:
    """Return which part takes longer whom the others wait for, and by how much."""
    if whom.part is None or whom.part_s is None:
        return ""
    longer, part, where = format_seconds(whom.part_s), title_of(whom.part), at_line(whom.where)
    several = len(whom.ranks) > 1
    if ">" in whom.part:
        return f"; {'these spend' if several else 'it spends'} {longer} more than they do {part}{where}"
    share = whom.part_share
    relative = f" ({percent(share)})" if share is not None and _LEAST_SHARE <= share < 1.0 else ""
    own, others = ("their", "that of the others") if several else ("its", "theirs")
    take = "take" if whom.part in _PLURAL else "takes"
    return f"; {own} {part} {take} {longer}{relative} longer than {others}{where}"


def _not_named(whom: WaitedFor, steps: JudgedSteps) -> str:
    """Return that no rank is shown to be waited for, and what would show one; none is named for what chance may do."""
    if not whom.caused_share:
        return ""
    turns = " now for one of them, now for another" if whom.caused_share < _MOST_OF_IT and steps.alone is None else ""
    what = "causes more of it than chance would" if is_last_beyond_chance(steps.judged) else _LAST
    rest = "in the other steps, " if steps.alone is not None else ""
    more = f"; about {format_count(whom.more_steps or 0, 'more step')} would show whether one is"
    return f"{turns}; {rest}no rank {what}{more if whom.more_steps else ''}"


def is_shown(time_s: Interval[float | None] | Interval) -> bool:
    """Whether the interval of a time is known and does not hold 0."""
    return time_s.low is not None and time_s.low > 0.0


def with_interval(found: Interval[float | None] | Interval) -> str:
    """Return a time with its interval, if that is known; the ends alone of one that is too wide to claim the time."""
    value = format_seconds(found.value or 0.0)
    if found.low is None or found.high is None:
        return value
    ends = f"{format_seconds(found.low)} to {format_seconds(found.high)}"
    return ends if is_undecided(found.low, found.high) else f"{value} ({ends})"


def percent(share: float | None) -> str:
    """Return a share in whole percent."""
    return f"{100 * (share or 0.0):.0f} %"
