"""The tables of advice that was tried and of causes that were planted: their rules exist, and the page counts them."""

import csv
import re
from pathlib import Path

import pytest

from steptime.diagnosis.form import OWN_SCRIPT
from steptime.diagnosis.rules import RULES
from steptime.diagnosis.tried_advice import is_inside, read_verified, record_of, widening

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "advice.md").read_text(encoding="utf-8").split())
NAMES = {rule.name for rule in RULES}


@pytest.fixture(scope="module")
def planted():
    with (ROOT / "benchmarks" / "advice" / "planted.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_rules_of_tried_advice_exist():
    assert {row.rule for row in read_verified()} <= NAMES


def test_rules_of_planted_causes_exist(planted):
    assert {row["rule"] for row in planted} <= NAMES


def test_the_page_counts_the_advice_that_was_tried():
    rows = read_verified()
    frameworks = {row.framework for row in rows} - {OWN_SCRIPT}

    found = re.search(r"(\d+) pieces of advice\S* in (\d+) frameworks", PAGE)

    assert found is not None
    assert [int(each) for each in found.groups()] == [len(rows), len(frameworks)]


def test_the_page_says_how_often_the_advice_was_right():
    rows = read_verified()
    record = record_of(rows, rows)

    found = re.search(r"(\d+) showed a difference, (\d+) of them a gain.* Only (\d+) gains.* others, (\d+) gains", PAGE)

    assert found is not None
    counts = [record.shown, record.sign_right, record.inside_unwidened, record.inside]
    assert [int(each) for each in found.groups()] == counts


def test_page_and_changelog_have_the_factor_that_widens_gains():
    below, above = widening(read_verified())
    factors = f"{below:.2f} times as wide below, {above:.2f} above"
    unreleased = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert factors in PAGE
    assert factors in unreleased


@pytest.mark.parametrize("key", ["rule", "framework"])
def test_the_page_counts_gains_inside_without_those_of_their_kind(key):
    rows = read_verified()
    inside = sum(is_inside(row, [each for each in rows if getattr(each, key) != getattr(row, key)]) for row in rows)
    assert f"of their {key} {inside}" in PAGE


def test_the_page_counts_the_planted_causes_that_were_found(planted):
    found = re.search(r"(\d+) planted causes, of which (\d+) were found", PAGE)

    assert found is not None
    assert [int(each) for each in found.groups()] == [len(planted), sum(row["fired"] == "yes" for row in planted)]
