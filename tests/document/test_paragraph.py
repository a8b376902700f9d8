"""Paragraphs as lines."""

import pytest

from steptime.document.paragraph import wrap_text

NUMBERS = ["12.3 ms", "8.1 %", "5 µs", "200 Mbit/s", "3.5 GiB", "16900 samples/s", "42.2 GFLOP/s", "90 s", "2 h"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("width", range(20, 60))
def test_no_line_ends_between_a_number_and_its_unit(number, width):
    text = f"a step of this trial takes {number} (1.25 to {number}), and then {number} more, of {number}"
    lines = wrap_text(text, width, indent="  ")
    assert sum(line.count(number) for line in lines) == 4
    assert max(map(len, lines)) <= width
    assert " ".join(line.strip() for line in lines) == text


def test_a_number_and_a_word_are_broken():
    assert wrap_text("there are 18 samples", 12) == ["there are 18", "samples"]
    assert wrap_text("there are 18 steps", 12) == ["there are 18", "steps"]
