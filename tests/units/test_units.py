"""Quantities as people write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.units import (
    format_bit_rate,
    format_bytes,
    format_seconds,
    parse_bit_rate,
    parse_bytes,
    parse_delay,
    parse_duration,
    parse_share,
    time_left,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("8m", 480),
        ("8min", 480),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("250ms", 0.25),
        ("5us", 5e-6),
        ("5 µs", 5e-6),
        ("5\u03bcs", 5e-6),
        ("800ns", 8e-7),
        ("1ms500us", 1.5e-3),
        (7, 7),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_read_as_people_write_it(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "8 parsecs", "m", "-3s", "3s m", -1])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"duration|negative"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [("10 minutes", "10m"), ("1.5 hours", "1.5h"), ("00:10:00", "0h10m0s"), ("1 hour, 30 min", "1h30m"),
     ("45secs", "45s"), ("1:30", "for example 90s"), ("2 days", "for example 90s")],
)  # fmt: skip
def test_a_duration_in_other_units_is_told_how_it_is_written(text, written):
    with pytest.raises(ValueError, match=f"write {written}"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("100Mbps", "100Mbit/s"),
        ("10 GbE", "10Gbit/s"),
        ("1 Gb/s", "1Gbit/s"),
        ("10gbps", "10Gbit/s"),
        ("5 mb/s", "5Mbit/s"),
        ("9Kbps", "9kbit/s"),
        ("fast", "for example 200Mbit/s"),
    ],
)
def test_a_bit_rate_in_other_units_is_told_how_it_is_written(text, written):
    with pytest.raises(ValueError, match=f"write {written}"):
        parse_bit_rate(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10GB/s", "in bits it is 80Gbit/s"),
        ("1.5 GB/s", "in bits it is 12Gbit/s"),
        ("200 MBps", "in bits it is 1600Mbit/s"),
        ("25Gbytes/s", "in bits it is 200Gbit/s"),
        ("10", "10Gbit/s or 10Mbit/s?"),
        ("2.5", "2.5Gbit/s or 2.5Mbit/s?"),
    ],
)
def test_bytes_are_no_bits_and_a_bit_rate_without_a_unit_is_asked_for_it(text, meant):
    with pytest.raises(ValueError, match=f"{re.escape(text)}' is not a bit rate; {re.escape(meant)}$"):
        parse_bit_rate(text)


@pytest.mark.parametrize("text", ["5", "29", "0.5"])
def test_a_duration_that_minutes_may_be_meant_by_is_asked_for_its_unit(text):
    with pytest.raises(ValueError, match=f"^{text} has no unit; write {text}s or {text}m$"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["5", "0.002", "50", 5])
def test_a_delay_is_asked_for_its_unit(text):
    with pytest.raises(ValueError, match=f"^{text} has no unit; write {text}us or {text}ms$"):
        parse_delay(text)


def test_a_delay_has_a_unit_or_is_none_or_comes_in_seconds_from_a_program():
    found = [parse_delay(each) for each in ("50us", "2ms", "0", 0, 0.002)]
    assert found == pytest.approx([5e-5, 2e-3, 0.0, 0.0, 0.002])


def test_a_share_may_be_written_in_percent():
    assert parse_share("1%") == parse_share(0.01) == parse_share("0.01") == 0.01
    assert [parse_share(text) for text in ("500%", "0", " 0.5 ", "0%", "100%", "-1%")] == [
        5.0,
        0.0,
        0.5,
        0.0,
        1.0,
        -0.01,
    ]


@pytest.mark.parametrize(
    ("text", "meant"), [("5", "5% or 500%"), ("1", "1% or 100%"), ("1.05", "1.05% or 105%"), ("80", "80% or 8000%")]
)
def test_a_share_of_one_or_more_without_a_unit_is_asked_back(text, meant):
    with pytest.raises(ValueError, match=f"^{text} has no unit; write {meant}$"):
        parse_share(text)


def test_only_a_share_that_does_not_reach_one_takes_numbers_above_it_for_percent():
    assert [parse_share(text, below_one=True) for text in ("80", "80%", "0.8", "1.5")] == [0.8, 0.8, 0.8, 0.015]
    with pytest.raises(ValueError, match="1% or 100%"):
        parse_share("1", below_one=True)


@pytest.mark.parametrize("text", ["", "%", "much", "nan", "inf%", "1e999", "5 x"])
def test_what_is_no_share_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is not a share; write for example 5%"):
        parse_share(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5e-5, "25 µs"),
        (0.0123, "12.3 ms"),
        (1.239, "1.24 s"),
        (0.9996, "1 s"),
        (59.97, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (-1.5e-3, "-1.5 ms"),
    ],
)
def test_a_time_is_shown_in_a_fitting_unit(seconds, text):
    assert format_seconds(seconds) == text


@given(st.floats(min_value=1e-5, max_value=59))
def test_a_shown_time_is_within_half_a_percent_of_the_time(seconds):
    number, unit = format_seconds(seconds).split()
    assert float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit] == pytest.approx(seconds, rel=6e-3)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (3 * 2**30, "3 GiB"), (2**45, "32 TiB")])
def test_a_size_is_shown_in_binary_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "rate"),
    [("200Mbit/s", 2e8), ("1 Gbit/s", 1e9), ("1.5gbit", 1.5e9), ("9600bit/s", 9600.0), ("64 kbit/s", 64e3)],
)
def test_a_bit_rate_may_be_written_as_people_write_it(text, rate):
    assert parse_bit_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1Mbit/s", "200 Mbit/h"])
def test_what_is_no_bit_rate_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="200Mbit/s"):
        parse_bit_rate(text)


@given(st.floats(min_value=1.0, max_value=9e11))
def test_a_shown_bit_rate_is_within_half_a_percent_and_can_be_read_again(rate):
    assert parse_bit_rate(format_bit_rate(rate)) == pytest.approx(rate, rel=6e-3)


@pytest.mark.parametrize(
    ("text", "count"),
    [("512B", 512), ("1KiB", 1024), ("4 kB", 4000), ("1.5 MiB", 1572864), ("2mib", 2097152), ("1GB", 10**9)],
)
def test_a_size_is_read_with_prefixes_of_both_kinds(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "1024", "MiB", "4Mbit", "-1KiB", "0.3B", "1 TiB"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write for example 64KiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("least_s", "most_s", "text"),
    [
        (None, None, ""),
        (0.0, 8.69, "at most 9 s left"),
        (None, 8.69, "at most 9 s left"),
        (-3.0, 70.2, "at most 1 min 10 s left"),
        (0.0, 0.0, "less than 1 s left"),
        (1e-6, 2e-6, "less than 1 s left"),
        (90.0, None, "about 1 min 30 s left"),
        (90.0, 95.0, "about 1 min 35 s left"),
        (90.0, 240.0, "about 1 min 30 s to 4 min 0 s left"),
    ],
)
def test_time_left_is_in_seconds_and_begins_at_no_fraction_of_one(least_s, most_s, text):
    assert time_left(least_s, most_s) == text
