"""What an attached script does in a second, in sentences."""

from collections.abc import Iterator

from steptime.attached.form import Throughput, TrainedAmount
from steptime.report.number_format import number, percent, rate


def throughput_sentences(found: Throughput, ranks: int) -> Iterator[str]:
    """Yield samples and tokens a second, or why samples are not known."""
    if found.samples.reason is not None and found.tokens.per_s.value is None:
        yield f"Samples/s are not known: {found.samples.reason}."
        return
    amounts = [(found.samples, "samples"), (found.tokens, "tokens")]
    known = [(each, noun) for each, noun in amounts if each.per_s.value is not None]
    if known:
        who = "The ranks train" if ranks > 1 else "It trains"
        rates = " and ".join(_rate(each, noun) for each, noun in known)
        steps = " and ".join(number(each.per_step or 0.0) for each, _ in known)
        padding = "" if found.padding is None else f"; {percent(found.padding, None, None).text} of tokens are padding"
        yield f"{who} on {rates}, {steps} a step{padding}."


def _rate(amount: TrainedAmount, noun: str) -> str:
    shown = rate(amount.per_s)
    return f"{shown.text} {noun}/s ({shown.interval})"
