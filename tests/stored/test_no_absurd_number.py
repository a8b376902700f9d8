"""No output of a stored study claims what its measurements cannot show."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from stored_studies import FITTED, PREDICTIONS, STUDIES, output_of, unpacked

COMPARED = {
    "four-frameworks": "framework=pytorch,mxnet",
    "stale-updates": "strategy=ps_sync,ps_async",
    "batches": "batch_per_worker=32,64",
}
"""What two sides of a study differ in; the trials of the others have no counterparts."""
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER})(?: ?[a-zA-Zµ%/]+)? \(({NUMBER}) to ({NUMBER})\)")
PERCENT = re.compile(rf"({NUMBER}) ?%")
TAG = re.compile(r"<[^>]*>")


@cache
def outputs(study: str) -> dict[str, str]:
    """Return what every verb prints of a stored study, by the verb."""
    with TemporaryDirectory() as root:
        results = str(unpacked(study, Path(root)))
        page = Path(root, "page.html")
        found = {
            "report": output_of("report", "--all", results, "--html", str(page), columns=200),
        }
        if study in COMPARED:
            found["compare"] = output_of("compare", results, "--by", COMPARED[study], columns=200)
        found["page"] = unescape(TAG.sub(" ", re.sub(r"(?s)<(script|style|svg).*?</\1>", " ", page.read_text())))
        if study in FITTED:
            profile = str(Path(root, "study.profile.json"))
            found["predict"] = output_of("predict", profile, *PREDICTIONS["predict.json"], columns=200)
    return found


def intervals(study: str) -> Iterator[tuple[str, str, str, str]]:
    for verb, text in outputs(study).items():
        for match in INTERVAL.finditer(text):
            yield f"{verb}: {match[0]}", *(group.replace(",", "") for group in match.groups())


@pytest.mark.parametrize("study", STUDIES)
def test_no_interval_whose_ends_differ_by_more_than_four_times_claims_its_number(study):
    wide = [
        shown
        for shown, value, low, high in intervals(study)
        if not {value[0], low[0], high[0]} & set("+-")
        and float(high) > 4.1 * float(low)  # a signed number is a difference
    ]

    assert not wide


@pytest.mark.parametrize("study", STUDIES)
def test_no_percentage_is_above_300(study):
    assert not [
        f"{verb}: {match[0]}"
        for verb, text in outputs(study).items()
        for match in PERCENT.finditer(text)
        if abs(float(match[1].replace(",", ""))) > 300.0
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_no_number_has_digits_beyond_its_interval(study):
    assert not [
        shown
        for shown, value, low, high in intervals(study)
        if len(value.partition(".")[2]) > max(len(each.partition(".")[2]) for each in (low, high))
    ]
