"""What a ranking says, as a sentence."""

from steptime.report.groups import RankedGroup, Row
from steptime.report.wording import NO_INTERVAL, Shown, count, listed, ratio, throughput

# Naming more would hide what the sentence says; the table marks all of them.
_MOST_NAMES = 4
_RESOLUTION = "3 %"
"""The half-width that ``Place.launches_to_settle`` aims at."""


def verdict(group: RankedGroup) -> str:
    """Return who is fastest and by how much, or who cannot be told apart and what would settle it."""
    if len(group.rows) == 1:
        row = group.rows[0]
        rate = throughput(row.trial.throughput_samples_per_s)
        return f"Only {row.name} was measured here: {Shown(f'{rate.text} samples/s', rate.interval).line}."
    tied = group.tied
    others = [row for row in group.rows if row not in tied]
    if len(tied) == 1:
        return _fastest(tied[0], others)
    sentence = _tie(tied)
    if others:
        sentence += f" The next, {others[0].name}, takes {_times(others[0])} of {tied[0].name}."
    return sentence


def _fastest(best: Row, others: list[Row]) -> str:
    nearest, *rest = others
    sentence = f"{best.name} is fastest: {nearest.name} takes {_times(nearest)}"
    if rest:
        sentence += f"; {rest[-1].name}, the slowest, {ratio(rest[-1].place.ratio_to_best).line}"
    if ratio(nearest.place.ratio_to_best).interval == NO_INTERVAL:
        sentence += "; without an interval, that is not certain"
    elif min(best.trial.launches, nearest.trial.launches) == 1:
        sentence += "; from a single launch, which cannot show how launches differ, that is not certain"
    return f"{sentence}."


def _tie(tied: list[Row]) -> str:
    names = [row.name for row in tied]
    who = listed(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} others, marked =,"
    sentence = f"{who} cannot be told apart at this budget"
    if len(tied) == 2:  # noqa: PLR2004 - a pair has one ratio, which says how far apart they may be
        sentence += f": the second takes {_times(tied[1])} of the first"
    needed = [row.place.launches_to_settle for row in tied[1:] if row.place.launches_to_settle is not None]
    if needed and max(needed) > 0:
        return f"{sentence}; about {count(max(needed), 'more launch')} of each would settle {_RESOLUTION}."
    if needed:
        return f"{sentence}; what separates them is known to within {_RESOLUTION} already."
    return f"{sentence}."


def _times(row: Row) -> str:
    return f"{ratio(row.place.ratio_to_best).line} the time"
