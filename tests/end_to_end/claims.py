"""What no printed line may claim: numbers with wide intervals, large percentages, digits beyond an interval."""

import re
from collections.abc import Iterator

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(
    rf"({NUMBER})(?: ?[a-zA-Zµ%/]+)? \(({NUMBER})(?: ?[a-zA-Zµ%/]+)? to ({NUMBER})(?: ?[a-zA-Zµ%/]+)?\)"
)
PERCENT = re.compile(rf"({NUMBER}) ?%")
WIDEST = 4.1
"""Times its lower end; 4, of ends that are rounded."""
LARGEST = 300.0


def intervals_in(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield each number with an interval: the words, the number, and the ends."""
    for match in INTERVAL.finditer(text):
        yield match[0], *(group.replace(",", "") for group in match.groups())


def too_wide(text: str) -> Iterator[str]:
    """Yield the numbers whose interval's ends differ by more than four times; a signed one is a difference."""
    for shown, value, low, high in intervals_in(text):
        if not {value[0], low[0], high[0]} & set("+-") and float(high) > WIDEST * float(low):
            yield shown


def large_percentages(text: str) -> Iterator[str]:
    """Yield percentages above 300, which are factors."""
    for match in PERCENT.finditer(text):
        if abs(float(match[1].replace(",", ""))) > LARGEST:
            yield match[0]


def further_digits(text: str) -> Iterator[str]:
    """Yield the numbers that have more decimals than both ends of their interval."""
    for shown, value, low, high in intervals_in(text):
        if len(value.partition(".")[2]) > max(len(each.partition(".")[2]) for each in (low, high)):
            yield shown
