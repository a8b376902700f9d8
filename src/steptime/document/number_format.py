"""How numbers are written: with their interval, in a fitting unit, and never as 0 when they are not known."""

from dataclasses import asdict
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, NamedTuple

from steptime.catalog.choices import strategy_named
from steptime.results.json_form import Interval, IntervalOverLaunches
from steptime.units import MOST_PERCENT, is_undecided

if TYPE_CHECKING:  # the numbers of an attached run are of no trial
    from steptime.analysis.accuracy import OverSeeds
    from steptime.analysis.summary_form import Efficiency, PublishedRatio, Staleness, StepTime, TrialSummary

UNKNOWN = "-"
NO_INTERVAL = "no interval"
INCONCLUSIVE = "inconclusive"
ONE_LAUNCH = "one launch each"
_PLURALS = {"launch": "launches", "crash": "crashes", "more launch": "more launches"}
_FEWEST_DIGITS, _MOST_DIGITS = 3, 5
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
"""Powers of ten."""


class Shown(NamedTuple):
    """A measured number and its interval as text; the interval is empty where nothing is known, or nothing open."""

    text: str
    interval: str

    @property
    def line(self) -> str:
        """Both in one line: ``12.3 ms (12.1 to 12.6)``."""
        return f"{self.text} ({self.interval})" if self.interval else self.text


def step_time(time: "StepTime") -> Shown:
    """``12.3 ms (12.1 to 12.6)``."""
    factor, unit = time_unit(time.mean or 0.0)
    value = IntervalOverLaunches(value=time.mean, low=time.low, high=time.high, least=time.least, most=time.most)
    return _of_launches(value, factor, f" {unit}")


def quantiles(time: "StepTime") -> Shown:
    """``12.1, 14.0, 30.2 ms``: what half, 90 % and 99 % of the steps take at most; a dash where that is not known."""
    values = (time.median, time.p90, time.p99)
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Shown(UNKNOWN, "")
    factor, unit = time_unit(known[0])
    return Shown(f"{', '.join(number(value * factor) for value in known)} {unit}", "")


def throughput(rate: IntervalOverLaunches[float | None]) -> Shown:
    """``1234 (1200 to 1260)``, in samples per second."""
    return _of_launches(rate)


def samples_per_s(rate: IntervalOverLaunches[float | None]) -> str:
    """``1234 samples/s (1200 to 1260)``; where that is not settled, ``4214 to 8263 samples/s by launch``."""
    shown = throughput(rate)
    if shown.text != INCONCLUSIVE or rate.least is None or rate.most is None:
        return Shown(f"{shown.text} samples/s", shown.interval).line
    if rate.least == rate.most:
        return f"{number(rate.most)} samples/s in one launch"
    return f"{number(rate.least)} to {number(rate.most)} samples/s by launch"


def ratio(value: IntervalOverLaunches[float | None]) -> Shown:
    """``1.24x (1.20 to 1.29)``."""
    return _of_launches(value, unit="x")


def drawn_interval(value: "IntervalOverLaunches[float | None] | Efficiency") -> tuple[float | None, float | None]:
    """Return the interval to draw; where it is not settled, the range that launches gave."""
    return (value.low, value.high) if is_settled(value) else (value.least, value.most)


def is_settled(value: "IntervalOverLaunches[float | None] | Efficiency | OverSeeds") -> bool:
    """Say whether the interval is narrow enough to claim its number, or there is none."""
    return value.value is None or not is_undecided(value.low, value.high)


def share(trial: "TrialSummary") -> Shown:
    """``93.1 % (92.8 to 93.5)``, or ``baseline`` for what the others are relative to; above 300 % a factor."""
    efficiency = trial.efficiency
    if efficiency.baseline_workers == trial.workers:
        return Shown("baseline", "")
    if max(efficiency.value or 0.0, efficiency.high or 0.0) > MOST_PERCENT:
        return _of_launches(efficiency, 1.0, "x")
    return _of_launches(efficiency, 100.0, " %")


def rate(value: Interval[float | None]) -> Shown:
    """``0.42 (0.38 to 0.47)``, of something per second."""
    return _shown(value.value, value.low, value.high)


def published(found: "PublishedRatio") -> str:
    """``published 2.65x; measured 1.52x (1.44 to 1.60), average of 4 pairs from 1.1x to 2.3x``."""
    claimed = f"published {number(found.published)}x" if found.published is not None else "published without a number"
    if not found.pairs or found.least is None or found.most is None:
        return f"{claimed}; nothing measured to compare it with"
    spread = f" from {number(found.least)}x to {number(found.most)}x" if found.pairs > 1 else ""
    measured = found.measured
    shown = ratio(IntervalOverLaunches(**asdict(measured), least=found.least, most=found.most))
    return f"{claimed}; measured {shown.line}, average of {count(found.pairs, 'pair')}{spread}"


def staleness(found: "Staleness | None") -> Shown:
    """``0.97 (0.95 to 0.99)``: the mean, in updates; a dash where nothing can be stale."""
    return _shown(found.mean, found.low, found.high) if found else Shown(UNKNOWN, "")


def baseline(trial: "TrialSummary") -> str:
    """What a trial's efficiency is relative to, ``vs 1 worker``; empty for the baseline itself."""
    efficiency = trial.efficiency
    if efficiency.baseline_workers in (None, trial.workers):
        return ""
    strategy = efficiency.baseline_strategy
    strategy = f" ({strategy})" if strategy and not strategy_named(strategy).single_baseline else ""
    return f"vs {count(efficiency.baseline_workers or 0, 'worker')}{strategy}"


def seconds(value: float | None, low: float | None, high: float | None, unit: tuple[float, str] | None = None) -> Shown:
    """``12.3 ms (12.1 to 12.6)``, in the ``unit`` of ``time_unit`` that suits the value, or in the given one.

    A part of something that is not known within the factor of ``is_undecided`` is ``at most 12.6 ms``.
    """
    factor, letters = unit or time_unit(abs(value or 0.0))
    return _part(value, low, high, factor, f" {letters}")


def seconds_apart(value: float | None, low: float | None, high: float | None, unit: tuple[float, str]) -> Shown:
    """``-1.2 ms (-1.9 to -0.5)``: a difference, which may be of either sign."""
    factor, letters = unit
    return _shown(value, low, high, factor, f" {letters}")


def percent_apart(value: float | None, low: float | None, high: float | None) -> Shown:
    """``-1.2 % (-1.9 to -0.5)``: a difference as a share, which may be of either sign; above 300 % a factor."""
    if max(abs(each) for each in (value or 0.0, low or 0.0, high or 0.0)) > MOST_PERCENT:
        return _shown(value, low, high, 1.0, "x")
    return _shown(value, low, high, 100.0, " %")


def percent(value: float | None, low: float | None, high: float | None) -> Shown:
    """``5.83 % (5.1 to 6.6)``, of a share, with bounds as ``seconds`` has them; above 300 % a factor, ``4.20x``.

    A share that may be all or more, and is not known within the factor of ``is_undecided``, is inconclusive.
    """
    if value is not None and high is not None and high >= 1.0 and is_undecided(low, high):
        return Shown(INCONCLUSIVE, "")
    if max(abs(each) for each in (value or 0.0, low or 0.0, high or 0.0)) > MOST_PERCENT:
        return _part(value, low, high, 1.0, "x")
    return _part(value, low, high, 100.0, " %")


def change(ratio_value: IntervalOverLaunches) -> Shown:
    """``+8.1 % (+3.2 to +13.2)``: a ratio less one; a factor where it is above 300 %, and its range if undecided."""
    value, low, high = ratio_value.value, ratio_value.low, ratio_value.high
    if not is_settled(ratio_value) or max(value, high or 0.0) - 1.0 > MOST_PERCENT:
        return ratio(ratio_value)
    if low is None or high is None:
        return Shown(signed(_shown(value - 1.0, None, None, 100.0, " %").text), ONE_LAUNCH)
    shown = _shown(value - 1.0, low - 1.0, high - 1.0, 100.0, " %")
    return Shown(signed(shown.text), " to ".join(map(signed, shown.interval.split(" to "))))


def signed(text: str) -> str:
    """Return a number as text with its sign."""
    return text if text.startswith(("-", "0 ", UNKNOWN)) or not text[:1].isdigit() else f"+{text}"


def times(value: float | None, low: float | None, high: float | None) -> Shown:
    """``1.24x (1.20 to 1.29)``."""
    if value is not None and is_undecided(low, high):
        return Shown(INCONCLUSIVE, f"about {number(value)}x")
    return _shown(value, low, high, 1.0, "x")


def gain_doubt(low: float | None, high: float | None) -> str:
    """``may be no gain`` where the interval of a gain holds 1, which promises nothing; empty where it is undecided."""
    if low is None or high is None or is_undecided(low, high):
        return ""
    return "may be no gain" if low <= 1.0 <= high else ""


def predicted_gain(value: float | None, low: float | None, high: float | None) -> str:
    """``predicted gain 1.24x (1.20 to 1.29)``, or ``may be no gain: predicted 1.10x (0.79 to 1.58)``.

    Where it is undecided, ``predicted gain anywhere from 0.90x to 8.30x`` is all.
    """
    if low is not None and high is not None and is_undecided(low, high):
        return f"predicted gain anywhere from {number(low)}x to {number(high)}x"
    shown, doubt = times(value, low, high).line, gain_doubt(low, high)
    return f"{doubt}: predicted {shown}" if doubt else f"predicted gain {shown}"


def scaled(rate: Interval[float | None], unit: str) -> Shown:
    """``9.61 GFLOP/s (9.50 to 9.72)``, with the prefix that suits the value."""
    steps = max((each for each in _PREFIXES if abs(rate.value or 0.0) >= 10.0**each), default=0)
    return _shown(rate.value, rate.low, rate.high, 10.0**-steps, f" {_PREFIXES[steps]}{unit}".rstrip())


def time_unit(seconds: float) -> tuple[float, str]:
    """Return what to multiply seconds with, and the unit that suits ``seconds``."""
    if seconds >= 1.0:
        return 1.0, "s"
    return (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")  # noqa: PLR2004 - the limits of the units are the units


def long_time_unit(seconds: float) -> tuple[float, str]:
    """Return the same of what may take minutes or hours."""
    if seconds >= 120.0:  # noqa: PLR2004 - likewise; two digits of the smaller unit would be too few
        return (1 / 60, "min") if seconds < 7200.0 else (1 / 3600, "h")  # noqa: PLR2004 - likewise
    return time_unit(seconds)


def distance(value: float | None) -> str:
    """A relative distance, of which the size matters: ``2e-07``."""
    return UNKNOWN if value is None else f"{value:.0e}" if value else "0"


def number(value: float) -> str:
    """Three significant digits, and all digits before the decimal point."""
    return _rounded(value, _places(value))


def whole(value: int | None) -> str:
    """A count with its thousands apart: ``13,714,442``."""
    return UNKNOWN if value is None else f"{value:,}"


def count(amount: int, noun: str) -> str:
    """``1 worker``, ``2 workers``, ``3 launches``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {_PLURALS.get(noun, noun + 's')}"


def listed(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _of_launches(
    value: "IntervalOverLaunches[float | None] | Efficiency", factor: float = 1.0, unit: str = ""
) -> Shown:
    """Return a number with its interval, or, where that is not settled, with the range that launches gave."""
    if is_settled(value) or value.least is None or value.most is None:
        return _shown(value.value, value.low, value.high, factor, unit)
    least, most = (number(each * factor) for each in (value.least, value.most))
    if least == most:
        return Shown(INCONCLUSIVE, f"one launch: {most}{unit}")
    return Shown(INCONCLUSIVE, f"launches: {least} to {most}{unit}")


def _part(value: float | None, low: float | None, high: float | None, factor: float, unit: str) -> Shown:
    if value is not None and high is not None and high > 0.0 and is_undecided(low, high):
        return Shown(f"at most {number(high * factor)}{unit}", "")
    return _shown(value, low, high, factor, unit)


def _shown(value: float | None, low: float | None, high: float | None, factor: float = 1.0, unit: str = "") -> Shown:
    if value is None or not isfinite(value):
        return Shown(UNKNOWN, "")
    if low is None or high is None or not isfinite(high - low):
        return Shown(number(value * factor) + unit, NO_INTERVAL)
    if low == high == value and value in {0.0, 1.0}:  # what cannot occur, or what is relative to itself
        return Shown(number(value * factor) + unit, "")
    places = _places(value * factor, (high - low) * factor / 2)
    return Shown(
        _rounded(value * factor, places) + unit, " to ".join(_rounded(x * factor, places) for x in (low, high))
    )


def _places(value: float, half_width: float = 0.0) -> int:
    """Return how many decimals show what is known: at least three digits, and no more than the interval allows.

    That is the first digit of the interval's half-width behind the point, and the second before it; negative
    where whole numbers are rounded. A value far below its interval has no digits of its own.
    """
    size = max(abs(value), half_width)
    first = floor(log10(size)) if size else 0
    least = _FEWEST_DIGITS - 1 - first
    if half_width <= 0.0:
        return max(0, least)
    known = -floor(log10(half_width))
    if known < 0:
        return max(least, known + 1)
    return max(least, min(known, _MOST_DIGITS - 1 - first), 0)


def _rounded(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:.{max(0, places)}f}"  # + 0.0, so that no -0 is shown
