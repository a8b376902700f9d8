"""What an attached script does in a second, in sentences."""

from collections.abc import Iterator

from steptime.attached.form import Throughput, TrainedAmount
from steptime.report.number_format import number, percent, rate


def throughput_sentences(throughput: Throughput, ranks: int) -> Iterator[str]:
    """Yield samples and tokens a second, or why samples are not known."""
    if throughput.samples.reason is not None and throughput.tokens.per_s.value is None:
        yield f"Samples/s are not known: {throughput.samples.reason}."
        return
    amounts = [(throughput.samples, "samples"), (throughput.tokens, "tokens")]
    known = [(amount, noun) for amount, noun in amounts if amount.per_s.value is not None]
    if known:
        who = "The ranks train" if ranks > 1 else "It trains"
        rates = " and ".join(_rate(amount, noun) for amount, noun in known)
        steps = " and ".join(number(amount.per_step or 0.0) for amount, _ in known)
        padding = (
            ""
            if throughput.padding is None
            else f"; {percent(throughput.padding, None, None).text} of tokens are padding"
        )
        yield f"{who} on {rates}, {steps} a step{padding}."


def _rate(amount: TrainedAmount, noun: str) -> str:
    shown = rate(amount.per_s)
    return f"{shown.text} {noun}/s ({shown.interval})"
