"""What an attached script does in a second, in sentences."""

from collections.abc import Iterator, Sequence

from steptime.attached.form import RankArithmetic, RankMemory, Throughput, TrainedAmount
from steptime.document.number_format import number, percent, rate, scaled
from steptime.results.json_form import Interval
from steptime.units import format_bytes, is_undecided

_NAMED = 4
"""Groups of ranks that a sentence names."""


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
            else f"; {percent(throughput.padding, None, None).text} of the tokens looked at are padding"
        )
        yield f"{who} on {rates}, {steps} a step{padding}{_readers(throughput.same_batches, ranks)}."


def _readers(groups: Sequence[Sequence[int]], ranks: int) -> str:
    """Return who reads the same batches."""
    if not groups:
        return ""
    if len(groups[0]) == ranks:
        return "; all ranks read the same batches"
    named = "; ".join(", ".join(map(str, group)) for group in groups[:_NAMED])
    return f"; ranks read the same batches in groups ({named}{'; …' if len(groups) > _NAMED else ''})"


def _rate(amount: TrainedAmount, noun: str) -> str:
    shown = rate(amount.per_s)
    if is_undecided(amount.per_s.low, amount.per_s.high):
        return f"{shown.interval} {noun}/s"
    return f"{shown.text} {noun}/s ({shown.interval})"


def arithmetic_sentence(flops: float, counted_by: str | None, known: RankArithmetic) -> str:
    """Return FLOP/s of a rank and its MFU, or why there is none."""
    step = scaled(Interval(flops, None, None), "FLOP").text
    how = " (6 for each token and parameter, without attention's own)" if counted_by == "6 N" else " (counted)"
    begin = f"One rank computes {step} in a step{how}, {scaled(known.flop_per_s, 'FLOP/s').line}"
    if known.reason is not None:
        return f"{begin}; MFU is not known: {known.reason}."
    mfu, peak = known.mfu, scaled(known.peak_flop_per_s, "FLOP/s").text
    source = "measured" if known.peak_source == "measured" else "of the data sheet"
    return f"{begin}: MFU {percent(mfu.value, mfu.low, mfu.high).line} of the {peak} {source} in {known.precision}."


def memory_sentences(ranks: Sequence[RankMemory]) -> Iterator[str]:
    """Yield the most that a rank took, on the host and on its device, and what was left."""
    resident = [rank.resident_peak for rank in ranks if rank.resident_peak is not None]
    if not resident:
        return
    whose = "A rank" if len(ranks) > 1 else "It"
    least = min((rank.available for rank in ranks if rank.available is not None), default=None)
    left = "" if least is None else f", with {format_bytes(least)} left"
    reserved = max(ranks, key=lambda rank: rank.device_reserved or 0)
    device = ""
    if reserved.device_reserved and reserved.device_allocated and reserved.device_whole:
        allocated, held, whole = map(
            format_bytes, (reserved.device_allocated, reserved.device_reserved, reserved.device_whole)
        )
        device = f"; on its device {held} of {whole} reserved, {allocated} allocated"
    yield f"{whose} takes up to {format_bytes(max(resident))} of the host's memory{left}{device}."
