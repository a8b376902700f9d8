"""The answer of a study with published claims, in its first paragraph: whether each claim holds here, and how far.

It also says where this machine differs so much from that of a claim that the comparison means little.
"""

from collections.abc import Iterator

from steptime.measurements.summary_form import LaunchValue, PublishedRatio, Summary
from steptime.report.number_format import count, number, percent, ratio

_LITTLE = 0.1
"""A share of a step that no faster loader can save more than."""


def answer(summary: Summary) -> str:
    """Return the first paragraph; empty for a study without claims."""
    if not summary.published:
        return ""
    return " ".join([*(_verdict(found) for found in summary.published), *_differences(summary)])


def _verdict(found: PublishedRatio) -> str:
    claim = found.claim.rstrip(".")
    known = (
        f"published {number(found.published)}x" if found.published is not None else "published without a number here"
    )
    measured = found.measured
    if not found.pairs or found.least is None or found.most is None or measured.low is None or measured.high is None:
        return f"{claim}: nothing measured here to compare it with ({known})."
    shown = ratio(LaunchValue(**measured.model_dump(), least=found.least, most=found.most)).line
    pairs = count(found.pairs, "pair")
    if measured.low > 1.0:
        return f"{claim}: that holds here, by {shown} over {pairs} of trials ({known})."
    if measured.high < 1.0:
        return f"{claim}: that does not hold here; the ratio is {shown} over {pairs} of trials ({known})."
    return f"{claim}: that is not shown here; the ratio is {shown} over {pairs} of trials ({known})."


def _differences(summary: Summary) -> Iterator[str]:
    machines = dict.fromkeys(found.machine for found in summary.published if found.machine)
    if machines:
        here = ", ".join(dict.fromkeys(f"{trial.device} devices" for trial in summary.trials))
        most = max((trial.workers for trial in summary.trials), default=0)
        yield f"Published on {'; '.join(machines)}; measured here with at most {count(most, 'worker')} on {here}."
    shares = [row.waited_share for verdict in summary.loaders for row in verdict.rows if row.waited_share]
    if shares and all(share.high is not None and share.high < _LITTLE for share in shares):
        largest = max(shares, key=lambda share: share.value)
        yield (
            f"Training limits here, not loading: at most {percent(largest.value, largest.low, largest.high).line} of a "
            "step waits for its batch, so that no loader can save more, and what the claims say of loaders on faster "
            "devices cannot be seen on this machine; the loader verdict says from which device speed on it would be."
        )
