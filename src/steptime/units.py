"""Quantities as people write them, turned into SI once, where text is parsed, and back once, where it is printed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf

_DURATION = re.compile(r"\s*(?:(\d+(?:\.\d+)?)\s*(h|min|ms|[u\u00b5\u03bc]s|ns|m|s))", re.IGNORECASE)
_SECONDS = {"h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BARE = re.compile(r"\d+(\.\d+)?")
LEAST_BARE_S = 30
DURATIONS = "for example 90s, 8m, 2ms or 50us"
_BIT_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)bit(?:/s)?", re.IGNORECASE)
_OTHER_BIT_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgG])b(?:ps|/s|E|it/sec)?")
"""As people write bits; a large B is of bytes."""
_BYTE_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG])(?:B|[Bb]yte)s?(?:ps|/s)?")
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_BITS_PER_BYTE = 8.0
_KIBI = 1024.0
_PERCENT = 100.0
MOST_PERCENT = 3.0
"""A share above this is written as a factor."""
_MOST_APART = 4.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(i?)B", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}


def parse_duration(text: str | float) -> float:
    """Return seconds for ``90``, ``"90s"``, ``"8m"``, ``"1h30m"``, ``"250ms"``, ``"5us"`` or ``"5µs"``, ``"800ns"``.

    Raises ValueError for anything else, for negative values, and for a text of fewer than 30 without a unit, which may
    be meant in another one than seconds.
    """
    if isinstance(text, (int, float)):
        seconds = float(text)
    else:
        seconds, rest = 0.0, text.strip()
        if _BARE.fullmatch(rest):
            require_unit(rest, LEAST_BARE_S)
            seconds, rest = float(rest), ""
        while rest:
            match = _DURATION.match(rest)
            if match is None:
                message = f"{text!r} is not a duration; write {_duration_meant(text)}"
                raise ValueError(message)
            seconds += float(match[1]) * _SECONDS[_ascii_unit(match[2])]
            rest = rest[match.end() :].strip()
        if not text.strip():
            message = f"an empty text is not a duration; write {DURATIONS}"
            raise ValueError(message)
    if seconds < 0:
        message = f"{text!r} is negative; a duration is not"
        raise ValueError(message)
    if isinf(seconds):
        message = f"{str(text)[:40]!r} is longer than anything; a duration ends"
        raise ValueError(message)
    return seconds


def parse_delay(text: str | float) -> float:
    """Return the seconds of a delay of a link, as ``parse_duration``; raises ValueError for any text without a unit."""
    require_unit(text, inf, ("us", "ms"))
    return parse_duration(text)


def require_unit(value: object, least: float, usual: Sequence[str] = ("s", "m")) -> None:
    """Raise ValueError for a text or a whole number without a unit, above 0 and below ``least``.

    ``usual`` are the units that may have been meant.
    """
    text = str(value).strip()
    if not isinstance(value, float) and _BARE.fullmatch(text) and 0.0 < float(text) < least:
        message = f"{text} has no unit; write {' or '.join(f'{text}{unit}' for unit in usual)}"
        raise ValueError(message)


def _duration_meant(text: str) -> str:
    """Return how a duration is written whose units are whole words or colons; else examples."""
    clock = re.fullmatch(r"(\d+):(\d\d):(\d\d)", text.strip())
    words = "{}h{}m{}s".format(*map(int, clock.groups())) if clock else text.strip().lower()
    written = re.sub(r"\s*(?:(h)(?:ours?|rs?)?|(m)(?:inutes?|ins?)?|(s)(?:econds?|ecs?)?)(?![a-z])[\s,]*", _unit, words)
    whole = re.fullmatch(r"(\d+(\.\d+)?[hms])+", written)
    return written if whole else DURATIONS


def _unit(match: re.Match[str]) -> str:
    return match[match.lastindex or 0]


def _ascii_unit(unit: str) -> str:
    # Keyboards write the micro sign, U+00B5, as well as the Greek letter, U+03BC.
    return re.sub("[\u00b5\u03bc]", "u", unit.lower())


def parse_share(text: str | float, *, below_one: bool = False) -> float:
    """Return a share for ``"1%"`` or ``0.01``; a share of more than 1 has its %.

    Args:
        text: as people write it; a number of a program is taken as it is.
        below_one: whether no such share reaches 1, so that a text above 1 without a unit can only be percent.

    Raises ValueError for anything else, and for a text of 1 or more without a unit, which may be percent or times.
    """
    if not isinstance(text, str):
        return float(text)
    written = text.strip()
    if written.endswith("%"):
        return _finite(written[:-1], text) / _PERCENT
    share = _finite(written, text)
    if share < 1.0:
        return share
    if below_one and share > 1.0:
        return share / _PERCENT
    message = f"{written} has no unit; write {written}% or {_PERCENT * share:.12g}%"
    raise ValueError(message)


def _finite(number: str, text: str) -> float:
    try:
        share = float(number)
    except ValueError:
        share = inf
    if not isfinite(share):
        message = f"{text!r} is not a share; write for example 5% or 0.05"
        raise ValueError(message)
    return share


def parse_bit_rate(text: str) -> float:
    """Return bits per second for ``"200Mbit/s"``, ``"1 Gbit"``, ``"9600bit/s"``; prefixes are powers of 1000.

    Raises ValueError for anything else: a number without a unit could mean bytes as well.
    """
    match = _BIT_RATE.fullmatch(text.strip())
    if match is None or isinf(float(match[1])):
        message = f"{text!r} is not a bit rate; {_bit_rate_meant(text.strip())}"
        raise ValueError(message)
    return float(match[1]) * _BITS[match[2].lower()]


def _bit_rate_meant(text: str) -> str:
    """Return how a rate is written in bits that lacks its unit or is written otherwise; else examples."""
    if other := _OTHER_BIT_RATE.fullmatch(text):
        prefix = other[2].lower()
        return f"write {other[1]}{prefix if prefix == 'k' else prefix.upper()}bit/s"
    if (rate := _BYTE_RATE.fullmatch(text)) and isfinite(float(rate[1])):
        return f"in bits it is {_BITS_PER_BYTE * float(rate[1]):.12g}{rate[2]}bit/s"
    if _BARE.fullmatch(text):
        return f"{text}Gbit/s or {text}Mbit/s?"
    return "write for example 200Mbit/s or 1Gbit/s"


def parse_bytes(text: str) -> int:
    """Return bytes for ``"16MiB"``, ``"4 kB"``, ``"100B"``; prefixes are powers of 1024 with an i, else of 1000.

    Raises ValueError for anything else, and where no whole number of bytes comes out.
    """
    match = _SIZE.fullmatch(text.strip())
    count = float(match[1]) * (_KIBI if match[3] else 1e3) ** _POWERS[match[2].lower()] if match else 0.5
    if not count.is_integer():
        message = f"{text!r} is not a size; write for example 64KiB, 4MiB or 512B"
        raise ValueError(message)
    return int(count)


def is_undecided(low: float | None, high: float | None) -> bool:
    """Say whether an interval of a positive quantity is too wide to claim its number: its ends differ by four times."""
    return low is not None and high is not None and high > _MOST_APART * max(low, 0.0)


def format_error(of_hundred: float) -> str:
    """Return an error in percent: ``8.1 %``; above 300 % by how many times a prediction is off: ``4.1x``."""
    return f"{of_hundred:.1f} %" if abs(of_hundred) <= 100.0 * MOST_PERCENT else f"{1.0 + of_hundred / 100.0:.1f}x"


def format_bit_rate(bits_per_s: float) -> str:
    """Return a bit rate with three significant digits: ``200 Mbit/s``."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if abs(bits_per_s) < 999.5:  # noqa: PLR2004 - the limits of the units are the units
            return f"{bits_per_s:.3g} {unit}"
        bits_per_s /= 1e3
    return f"{bits_per_s:.3g} Gbit/s"


def format_seconds(seconds: float) -> str:
    """Return a time with three significant digits and a fitting unit: ``12.3 ms``, ``-1.24 s``, ``3 min 20 s``."""
    if seconds < 0.0:
        return f"-{format_seconds(-seconds)}"
    # Where three digits would round up to the next unit, the next unit is used.
    if seconds < 0.9995e-3:  # noqa: PLR2004 - the limits of the units are the units
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:  # noqa: PLR2004
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:  # noqa: PLR2004
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


_ALIKE = 1.1
"""Two times left whose ratio is below this are shown as one."""


def time_left(least_s: float | None, most_s: float | None = None) -> str:
    """Return ``about 3 min left``, ``at most 9 s left`` or ``about 3 min to 5 min left``; empty if both are unknown.

    Nothing of that is known better than to a second.
    """
    if least_s is None and most_s is None:
        return ""
    least, most = (max(0, round(each or 0.0)) for each in (least_s, most_s))
    most = max(least, most)
    if most < 1:
        return "less than 1 s left"
    if least < 1 < most or least_s is None:
        return f"at most {format_seconds(most)} left"
    if most <= _ALIKE * least:
        return f"about {format_seconds(most)} left"
    return f"about {format_seconds(least)} to {format_seconds(most)} left"


def format_count(count: int, noun: str, several: str | None = None) -> str:
    """Return ``1 worker`` or ``1,200 workers``; ``several`` is the plural where it is not the noun and an s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def format_bytes(count: float) -> str:
    """Return a size with a binary unit: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < _KIBI:
            return f"{count:.3g} {unit}"
        count /= _KIBI
    return f"{count:.3g} TiB"


@dataclass(frozen=True)
class PrintedNumber:
    """A number as another program printed it."""

    value: float
    off: float = 0.0
    """Half of its last digit."""

    @property
    def relative(self) -> float:
        """How far it may be off, as a share of it."""
        return self.off / abs(self.value) if self.value else 0.0


def parse_printed(text: str) -> PrintedNumber:
    """Return a number with what its last digit leaves open; raises ValueError where it is none."""
    value = float(text)
    digits, _, exponent = text.lower().partition("e")
    place = int(exponent) if value and exponent else 0
    return PrintedNumber(value, 0.5 * 10.0 ** (place - len(digits.partition(".")[2])) if isfinite(value) else 0.0)
